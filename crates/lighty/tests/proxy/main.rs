//! The proxy core and what stands behind it: pools, backlog, fail-over, health checks, and real
//! backends of every protocol (PHP-FPM, uWSGI, Tomcat, CGI, gRPC, WebSocket).

mod backends;
mod backends_http;
mod backlog;
mod cgi;
mod checks;
mod exact;
mod failover;
mod faults;
mod features;
mod foreign_clients;
mod full_duplex;
mod gateway_faults;
mod grpc;
mod http2;
mod http2_clients;
mod kept;
mod mapping;
mod names;
mod other_servers;
mod php;
mod processes;
mod program_variables;
mod relay;
mod resending;
mod resting;
mod smuggling;
mod sockproxy;
mod spawn;
mod spooling;
mod stats;
mod tls;
mod tomcat;
mod uwsgi;
mod websocket;
mod wstunnel;
