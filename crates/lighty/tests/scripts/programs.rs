//! The programs beside the server: spawn-fcgi, `lighty spawn`, fcgi-stat-accel, lua-fastcgi-magnet,
//! alone and with real FastCGI applications and servers around them.

mod front;
mod magnet_fcgi;
mod spawn;
mod spawn_fcgi;
mod stat_accel;
