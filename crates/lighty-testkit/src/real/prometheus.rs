//! Prometheus, which collects metrics every second and answers queries about them.

use std::time::{Duration, Instant};

use serde_json::Value;

use super::{Listen, Program, find, put, text};
use crate::client::Client;
use crate::server::Server;

/// Time limit for a query to have a result.
const PATIENCE: Duration = Duration::from_secs(90);

/// A running collector.
pub struct Prometheus {
    program: Program,
    listen: Listen,
}

impl Prometheus {
    /// Starts a collector for this path of a server. With native histograms, it requests protocol
    /// buffers.
    #[must_use]
    pub fn collecting(server: &Server, path: &str, native: bool) -> Option<Self> {
        let binary = find(&["prometheus"])?;
        let directory = Program::directory();
        let config = format!(
            "global:\n  scrape_interval: 1s\nscrape_configs:\n- job_name: lighty\n  \
             metrics_path: {path}\n  static_configs:\n  - targets: ['{}']\n",
            server.address()
        );
        put(&directory, "prometheus.yml", config);
        let listen = Listen::free_port();
        let own = text(directory.path());
        let line = [
            text(&binary),
            &format!("--config.file={own}/prometheus.yml"),
            &format!("--storage.tsdb.path={own}/data"),
            &format!("--web.listen-address={}", listen.address()),
            if native { "--enable-feature=native-histograms" } else { "--log.level=info" },
        ]
        .map(str::to_owned);
        let line: Vec<&str> = line.iter().map(String::as_str).collect();
        let mut program = Program::start(directory, &line, &[]);
        program.await_listening(&listen);
        Some(Self { program, listen })
    }

    /// The result of a query: a list of series. Panics if the query is invalid.
    #[must_use]
    pub fn query(&self, query: &str) -> Vec<Value> {
        let encoded: String = query.bytes().map(|byte| format!("%{byte:02X}")).collect();
        let mut client = Client::tcp(self.listen.address());
        client.send(format!(
            "GET /api/v1/query?query={encoded} HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n"
        ));
        let response = client.response();
        // Plain text, until it has started.
        if response.status == 503 {
            return Vec::new();
        }
        let value: Value = serde_json::from_slice(&response.body).expect("JSON");
        assert_eq!(value["status"], "success", "{query}: {value}\n{}", self.program.log());
        value["data"]["result"].as_array().cloned().unwrap_or_default()
    }

    /// Waits for a result of a query and returns the first number.
    #[must_use]
    pub fn await_number(&self, query: &str) -> f64 {
        let start = Instant::now();
        loop {
            let found = self.query(query);
            let number = found.first().and_then(|first| first["value"][1].as_str()?.parse().ok());
            match number {
                Some(number) if !f64::is_nan(number) => return number,
                _ if start.elapsed() > PATIENCE => panic!("{query}\n{}", self.program.log()),
                _ => std::thread::sleep(Duration::from_millis(100)),
            }
        }
    }
}
