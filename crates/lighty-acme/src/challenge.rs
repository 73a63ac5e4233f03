//! Proofs of control over a name: put where the authority looks for them, and taken away again.

use std::io;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus, Stdio};
use std::time::Duration;

use instant_acme::{ChallengeType, KeyAuthorization};
use lighty_io::clock::deadline::Deadline;
use lighty_io::tls::challenge_certificate;

use crate::error::OrderError;
use crate::store::{self, Store};
use crate::wanted::ChallengeKind;

/// How long the program may take that sets records of DNS, until they can be seen.
const HOOK_PATIENCE: Duration = Duration::from_secs(600);

/// How often it is looked whether it has ended.
const HOOK_LOOK: Duration = Duration::from_millis(50);

/// Longest token that becomes a file's name: authorities use 43 bytes.
const TOKEN_BYTES_MAX: usize = 128;

impl ChallengeKind {
    pub(crate) fn acme(self) -> ChallengeType {
        match self {
            Self::Http01 => ChallengeType::Http01,
            Self::TlsAlpn01 => ChallengeType::TlsAlpn01,
            Self::Dns01 => ChallengeType::Dns01,
        }
    }
}

/// A proof that was put somewhere.
pub(crate) enum Proof {
    File(PathBuf),
    Record { hook: PathBuf, name: String, value: String },
}

impl Proof {
    /// Puts the proof for a host where it is looked for.
    pub(crate) async fn present(
        kind: ChallengeKind,
        hook: Option<&Path>,
        store: &Store,
        (host, token): (&str, &str),
        key: &KeyAuthorization,
    ) -> Result<Self, OrderError> {
        let put = |path: PathBuf, bytes: &[u8]| match store::write(&path, bytes) {
            Ok(()) => Ok(Self::File(path)),
            Err(error) => Err(OrderError::Store(error)),
        };
        match kind {
            ChallengeKind::Http01 => {
                // It comes from elsewhere and becomes part of a path.
                let is_sound =
                    token.bytes().all(|b| b.is_ascii_alphanumeric() || b"-_".contains(&b));
                if !is_sound || !(1..=TOKEN_BYTES_MAX).contains(&token.len()) {
                    return Err(OrderError::Malformed("the authority's token is malformed"));
                }
                put(store.http_challenges().join(token), key.as_str().as_bytes())
            }
            ChallengeKind::TlsAlpn01 => {
                let pem = challenge_certificate(host, key.digest().as_ref());
                let pem = pem.map_err(OrderError::Tls)?;
                put(store.handshake_challenge(host), pem.as_bytes())
            }
            ChallengeKind::Dns01 => {
                let missing = OrderError::Malformed("dns-01 needs acme.dns-hook");
                let hook = hook.ok_or(missing)?.to_owned();
                let (name, value) = (format!("_acme-challenge.{host}"), key.dns_value());
                run(&hook, "present", &name, &value).await?;
                Ok(Self::Record { hook, name, value })
            }
        }
    }

    /// Takes it away. What goes wrong is told.
    pub(crate) async fn remove(self) -> Result<(), OrderError> {
        match self {
            Self::File(path) => {
                store::remove(&path);
                Ok(())
            }
            Self::Record { hook, name, value } => run(&hook, "cleanup", &name, &value).await,
        }
    }
}

/// Runs the operator's program until it ends.
async fn run(hook: &Path, verb: &str, name: &str, value: &str) -> Result<(), OrderError> {
    let ended = end_of(hook, [verb, name, value]).await;
    let is_done = ended.and_then(|status| match status.success() {
        true => Ok(()),
        false => Err(io::Error::other(status.to_string())),
    });
    is_done.map_err(|error| OrderError::Hook(format!("{} {verb} {name}", hook.display()), error))
}

async fn end_of(hook: &Path, arguments: [&str; 3]) -> io::Result<ExitStatus> {
    let mut command = Command::new(hook);
    let mut child = command.args(arguments).stdin(Stdio::null()).stdout(Stdio::null()).spawn()?;
    let deadline = Deadline::after(HOOK_PATIENCE);
    loop {
        match child.try_wait()? {
            Some(status) => return Ok(status),
            None if !deadline.is_over() => tokio::time::sleep(HOOK_LOOK).await,
            None => {
                child.kill()?;
                child.wait()?;
                return Err(io::ErrorKind::TimedOut.into());
            }
        }
    }
}
