//! The service of `auth.forward`: it permits, refuses, or gives no verdict.

use std::time::Duration;

use tokio::time::sleep;

use super::backend::{Backend, Over, Result};
use super::rng::Rng;
use super::sim::{Sim, number_in};

/// Path of the requests that the service decides about.
pub(crate) const GUARDED: &str = "/a/x";

/// Bytes of a refusal's body.
const REFUSAL_BYTES: usize = 3_000;

/// Behaviour of the service towards a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ServiceBehavior {
    Allow,
    /// Permits after a pause, which may be longer than the time for a verdict.
    AllowLate(Duration),
    Deny(u16),
    /// Refuses with 401, but ends the connection in the body.
    DenyAndDie,
    Fail,
    DieBeforeHead,
    DieInHead,
    Reset,
    Hang,
    Garbage,
}

impl ServiceBehavior {
    /// Chooses a behaviour.
    pub(crate) fn new(sim: &Sim, rng: &Rng) -> Self {
        match rng.below(12) {
            0 => Self::Deny(401),
            1 => Self::Deny(403),
            2 => Self::AllowLate(rng.ms(1, 2_000)),
            _ if sim.is_calm || rng.once_in(2) => Self::Allow,
            _ => rng.pick(&[
                Self::AllowLate(Duration::from_secs(10)),
                Self::DenyAndDie,
                Self::Fail,
                Self::DieBeforeHead,
                Self::DieInHead,
                Self::Reset,
                Self::Hang,
                Self::Garbage,
            ]),
        }
    }

    /// True if a request may reach its backend.
    pub(crate) fn may_allow(self) -> bool {
        matches!(self, Self::Allow | Self::AllowLate(_))
    }
}

impl Backend {
    /// Decides about requests until the connection ends.
    pub(crate) async fn serve_verdicts(mut self) {
        while let Ok(true) = self.decide().await {}
        self.sim.event(format_args!("{} is over", self.name));
    }

    /// Decides about one request. Returns true if the connection is kept.
    async fn decide(&mut self) -> Result<bool> {
        let head = self.head().await?;
        let text = String::from_utf8_lossy(&head).into_owned();
        let fields: Vec<_> = text.lines().filter_map(|line| line.split_once(": ")).collect();
        let field = |name: &str| {
            let found = fields.iter().find(|(own, _)| own.eq_ignore_ascii_case(name));
            found.map(|(_, value)| *value)
        };
        if !text.starts_with("GET /auth HTTP/1.1\r\n") {
            self.sim.wrong(format_args!("{}: not the request of a verdict: {text}", self.name));
        }
        if field("Content-Length").is_some_and(|length| length != "0")
            || field("Transfer-Encoding").is_some()
        {
            self.sim.wrong(format_args!("{}: the service gets a body: {text}", self.name));
        }
        let number = field("X-Forwarded-Uri").and_then(|target| number_in(target.as_bytes()));
        let behavior = number.and_then(|one| self.sim.services.borrow().get(&one).copied());
        let (Some(number), Some(behavior)) = (number, behavior) else {
            self.sim.wrong(format_args!("{}: a request without a number: {text}", self.name));
            return Err(Over);
        };
        self.sim.event(format_args!("{} decides about {number}: {behavior:?}", self.name));
        self.act(number, behavior).await
    }

    async fn act(&mut self, number: u64, behavior: ServiceBehavior) -> Result<bool> {
        let allow = format!("HTTP/1.1 200 OK\r\nX-User: {number}\r\nContent-Length: 2\r\n\r\nok");
        match behavior {
            ServiceBehavior::Allow => self.write_torn(allow.as_bytes()).await?,
            ServiceBehavior::AllowLate(pause) => {
                sleep(pause).await;
                self.write(allow.as_bytes()).await?;
            }
            ServiceBehavior::Deny(status) => self.deny(status, REFUSAL_BYTES).await?,
            ServiceBehavior::DenyAndDie => {
                let sent = self.rng.below(REFUSAL_BYTES as u64) as usize;
                self.deny(401, sent).await?;
                return Ok(false);
            }
            ServiceBehavior::Fail => {
                self.write(b"HTTP/1.1 500 No\r\nContent-Length: 0\r\n\r\n").await?;
            }
            ServiceBehavior::DieBeforeHead => return Ok(false),
            ServiceBehavior::DieInHead => {
                let cut = self.rng.between(1, 40) as usize;
                self.write(&allow.as_bytes()[..cut]).await?;
                return Ok(false);
            }
            ServiceBehavior::Reset => {
                self.reset();
                return Ok(false);
            }
            ServiceBehavior::Hang => return self.hang().await,
            ServiceBehavior::Garbage => {
                self.write(b"\x16\x03\x01 nonsense\r\n\r\n").await?;
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// Writes a refusal with this many bytes of its body.
    async fn deny(&mut self, status: u16, sent: usize) -> Result<()> {
        let head = format!(
            "HTTP/1.1 {status} No\r\nContent-Type: text/x\r\nContent-Length: {REFUSAL_BYTES}\r\n\r\n"
        );
        self.write(head.as_bytes()).await?;
        self.write(&vec![b'x'; sent]).await
    }
}
