//! Errors of orders and of other requests to an authority.

use std::fmt;
use std::io;

use instant_acme::{Error, Problem};
use lighty_io::tls::TlsError;

/// Maximum number of characters of an authority's message in the log.
const TEXT_CHARS_MAX: usize = 500;

/// Reason why an order failed.
#[derive(Debug)]
pub enum OrderError {
    /// An error of the authority, or of the connection to it.
    Protocol(Error),
    /// The authority's problems with the proofs that it refused, by name.
    Proofs(Vec<(String, Problem)>),
    /// The authority refused the order for this reason; the operator publishes its proofs, these
    /// records.
    Standing(Box<OrderError>, Vec<String>),
    /// The authority does not offer this kind of proof.
    NotOffered(&'static str),
    /// The authority violates the protocol.
    Malformed(&'static str),
    /// An error of a key, a certificate or the TLS to the authority.
    Tls(TlsError),
    /// The DNS hook failed.
    Hook(String, io::Error),
    /// The disk failed.
    Store(io::Error),
    /// Another process took the lock over.
    LockLost,
    /// It took too long.
    Late,
    /// All authorities failed, for these reasons.
    All(Vec<(String, OrderError)>),
}

impl fmt::Display for OrderError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Protocol(Error::Api(problem)) => write_problem(f, problem),
            Self::Protocol(Error::Json(_)) => {
                f.write_str("the authority's response cannot be read")
            }
            Self::Protocol(Error::Timeout(_)) => f.write_str("the authority took too long"),
            Self::Protocol(other) => other.fmt(f),
            Self::Proofs(reasons) if reasons.is_empty() => {
                f.write_str("the authority has refused the order")
            }
            Self::Proofs(reasons) => {
                let mut separator = "";
                reasons.iter().try_for_each(|(name, problem)| {
                    write!(f, "{}{name}: ", std::mem::replace(&mut separator, "; "))?;
                    write_problem(f, problem)
                })
            }
            Self::Standing(why, records) => {
                write!(f, "{why}; it looks for these records: {}", records.join(", "))
            }
            Self::NotOffered(kind) => write!(f, "the authority does not offer {kind}"),
            Self::Malformed(what) => f.write_str(what),
            Self::Tls(error) => error.fmt(f),
            Self::Hook(call, error) => write!(f, "{call}: {error}"),
            Self::Store(error) => error.fmt(f),
            Self::LockLost => f.write_str("another process has taken the lock over"),
            Self::Late => f.write_str("the order took too long"),
            Self::All(failed) => {
                let mut separator = "";
                failed.iter().try_for_each(|(issuer, why)| {
                    write!(f, "{}{issuer}: {why}", std::mem::replace(&mut separator, "; "))
                })
            }
        }
    }
}

impl std::error::Error for OrderError {}

impl From<Error> for OrderError {
    fn from(error: Error) -> Self {
        Self::Protocol(error)
    }
}

fn write_problem(f: &mut fmt::Formatter<'_>, problem: &Problem) -> fmt::Result {
    let kind = problem.r#type.as_deref().unwrap_or_default();
    let kind = kind.rsplit(':').next().unwrap_or_default();
    let detail = problem.detail.as_deref().unwrap_or("no reason is given");
    write!(f, "{} ({kind})", one_line(detail))?;
    problem.subproblems.iter().try_for_each(|part| {
        write!(f, "; {}", one_line(part.detail.as_deref().unwrap_or_default()))
    })
}

/// Removes control characters, which could forge a line of the log.
pub(crate) fn one_line(text: &str) -> String {
    text.chars().map(|c| if c.is_control() { ' ' } else { c }).take(TEXT_CHARS_MAX).collect()
}
