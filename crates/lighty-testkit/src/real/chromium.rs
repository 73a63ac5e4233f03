//! Headless Chromium, controlled through its driver by the WebDriver protocol (W3C, WebDriver 2).

use std::net::{SocketAddr, TcpStream};
use std::time::{Duration, Instant};

use super::{Program, find_optional, text};
use crate::client::Client;
use crate::response::Response;

/// Time limit of the driver's start.
const START_DEADLINE: Duration = Duration::from_secs(180);

/// Time limit of one command of the browser, which starts many processes on a busy computer.
const COMMAND_DEADLINE: Duration = Duration::from_secs(60);

/// Accepts invalid certificates: the browser does not know the authorities of tests.
const CAPABILITIES: &str = r#"{"capabilities":{"alwaysMatch":{"acceptInsecureCerts":true,
"goog:chromeOptions":{"args":
["--headless=new","--no-sandbox","--disable-gpu","--disable-dev-shm-usage"]}}}}"#;

/// A browser with one window.
pub struct Chromium {
    _driver: Program,
    address: SocketAddr,
    session: String,
}

impl Chromium {
    /// Starts a browser; `None` if Chromium or its driver is not installed.
    #[must_use]
    pub fn start() -> Option<Self> {
        let driver = find_optional(&["chromedriver"])?;
        find_optional(&["chromium", "google-chrome"])?;
        let directory = Program::directory();
        let home = text(directory.path()).to_owned();
        let line = [text(&driver), "--port=0"];
        let driver = Program::start(directory, &line, &[("HOME", &home), ("TMPDIR", &home)]);
        let address = await_port(&driver);
        let mut browser = Self { _driver: driver, address, session: String::new() };
        let answer = browser.command("POST", "/session", CAPABILITIES);
        browser.session = member(answer.text(), "sessionId");
        Some(browser)
    }

    /// Loads a page.
    pub fn open(&self, url: &str) {
        let target = format!("/session/{}/url", self.session);
        let _ = self.command("POST", &target, &format!("{{\"url\":\"{url}\"}}"));
    }

    /// Runs a script in the page and returns its text result.
    #[must_use]
    pub fn run(&self, script: &str) -> String {
        let target = format!("/session/{}/execute/sync", self.session);
        let quoted = script.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n");
        let body = format!("{{\"script\":\"{quoted}\",\"args\":[]}}");
        member(self.command("POST", &target, &body).text(), "value")
    }

    fn command(&self, method: &str, target: &str, body: &str) -> Response {
        let mut client = Client::tcp(self.address);
        client.set_deadline(COMMAND_DEADLINE);
        client.send(format!(
            "{method} {target} HTTP/1.1\r\nHost: {}\r\nContent-Type: application/json\r\n\
             Content-Length: {}\r\nConnection: close\r\n\r\n{body}",
            self.address,
            body.len()
        ));
        let answer = client.response();
        assert_eq!(answer.status, 200, "{method} {target}: {}", answer.text());
        answer
    }
}

/// Waits for the driver's start and returns the port that the kernel gave it.
fn await_port(driver: &Program) -> SocketAddr {
    let start = Instant::now();
    loop {
        let log = driver.log();
        let announcement = log.split("started successfully on port ").nth(1);
        let port = announcement.and_then(|rest| rest.split(|c: char| !c.is_ascii_digit()).next());
        if let Some(Ok(port)) = port.map(str::parse) {
            let address = SocketAddr::from(([127, 0, 0, 1], port));
            if TcpStream::connect(address).is_ok() {
                return address;
            }
        }
        assert!(!driver.has_ended() && start.elapsed() < START_DEADLINE, "no driver:\n{log}");
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// The text of a member of a flat JSON object. Scripts return texts without quotes and backslashes.
fn member(json: &str, name: &str) -> String {
    let found = json.split(&format!("\"{name}\":\"")).nth(1);
    let found = found.and_then(|rest| rest.split('"').next());
    found.unwrap_or_else(|| panic!("no text \"{name}\" in {json}")).to_owned()
}
