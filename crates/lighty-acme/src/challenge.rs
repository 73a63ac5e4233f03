//! Proofs of control over a name: put where the authority looks for them, and taken away again.

use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use instant_acme::{ChallengeType, KeyAuthorization};
use lighty_io::process::spawn::{Child, Exit, Output, Program, forward_lines};
use lighty_io::tls::challenge_certificate;

use crate::error::{OrderError, one_line};
use crate::store::{self, Store};
use crate::wanted::ChallengeKind;

/// How long the program may take that sets records of DNS, until they can be seen.
const HOOK_PATIENCE: Duration = Duration::from_secs(600);

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
    File(ProofFile),
    Record { hook: PathBuf, name: String, value: String },
}

/// A proof's file, which goes with it.
pub(crate) struct ProofFile(PathBuf);

impl Drop for ProofFile {
    fn drop(&mut self) {
        store::remove(&self.0);
    }
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
            Ok(()) => Ok(Self::File(ProofFile(path))),
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
            Self::File(file) => {
                drop(file);
                Ok(())
            }
            Self::Record { hook, name, value } => run(&hook, "cleanup", &name, &value).await,
        }
    }
}

/// Runs the operator's program until it ends. Dropping the future kills it, with its group.
async fn run(hook: &Path, verb: &str, name: &str, value: &str) -> Result<(), OrderError> {
    let call = || format!("{} {verb} {name}", hook.display());
    let mut last = String::new();
    let ended = end_of(hook, [verb, name, value], &mut last).await;
    let is_done = ended.and_then(|exit| match exit {
        Exit::Code(0) => Ok(()),
        _ if last.is_empty() => Err(io::Error::other(exit.to_string())),
        _ => Err(io::Error::other(format!("{exit}: {last}"))),
    });
    is_done.map_err(|error| OrderError::Hook(call(), error))
}

/// How the program ended. `last` gets the last line of its error output; the rest is dropped.
async fn end_of(hook: &Path, arguments: [&str; 3], last: &mut String) -> io::Result<Exit> {
    let mut program = Program::new(hook);
    program.args = arguments.map(Into::into).into();
    program.copy_whole_environment();
    program.stderr = Output::Pipe;
    let mut child = Child::spawn(program).await?;
    let stderr = child.stderr.take();
    let listening = async {
        match &stderr {
            Some(stderr) => {
                let on_line = |line: &[u8]| {
                    *last = one_line(&String::from_utf8_lossy(line));
                    true
                };
                forward_lines(stderr, on_line).await
            }
            None => Ok(()),
        }
    };
    let all = async { tokio::try_join!(child.wait(), listening) };
    match tokio::time::timeout(HOOK_PATIENCE, all).await {
        Ok(done) => done.map(|(exit, ())| exit),
        Err(_) => Err(io::ErrorKind::TimedOut.into()),
    }
}
