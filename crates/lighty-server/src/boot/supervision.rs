//! The service manager, which is told of the state of this process (sd_notify(3)).

use std::os::fd::AsFd;
use std::sync::Arc;

use lighty_core::log::Level;
use lighty_core::machine::status_board::ReportParts;
use lighty_io::listen::{BindSpec, Inherited};
use lighty_io::process::service_manager::{self, ServiceManager};
use tokio::sync::watch;

use crate::listen::opened::OpenListeners;
use crate::reload::Plan;

/// Beginning of the names under which the manager keeps listening sockets of this server.
const KEPT: &str = "lighty-";

/// The service manager, if there is one.
pub(super) struct Supervision(Option<Arc<ServiceManager>>);

impl Supervision {
    /// Looks for the manager that started this process.
    pub(super) fn find(say: &dyn Fn(Level, &str)) -> Self {
        match ServiceManager::find() {
            Ok(manager) => Self(manager.map(Arc::new)),
            Err(error) => {
                say(Level::Warning, &format!("NOTIFY_SOCKET: {error}: the manager knows nothing"));
                Self(None)
            }
        }
    }

    /// A manager that reads nothing misses the message.
    fn tell(&self, lines: &str) {
        if let Some(manager) = &self.0 {
            let _ = manager.tell(lines);
        }
    }

    /// Tells that the server serves, and gives the manager the listening sockets to keep: if this
    /// process crashes, connections wait for the next one.
    pub(super) fn ready(&self, listeners: &OpenListeners) {
        let Some(manager) = &self.0 else { return };
        for (name, socket) in listeners.sockets() {
            // A unix socket without its path is of no use, and the path goes with an orderly stop.
            let is_unix = matches!(socket.address(), BindSpec::Unix(_));
            if !socket.is_inherited() && !is_unix {
                let _ = manager.store(&kept_name(&name), &[socket.as_fd()]);
            }
        }
        self.serving();
    }

    /// Tells that the server serves.
    fn serving(&self) {
        self.tell(&format!("READY=1\nSTATUS=serving\nMAINPID={}", std::process::id()));
    }

    /// Shows the manager signs of life, if it wants them, as long as all workers report in time.
    ///
    /// # Panics
    /// Outside a tokio runtime.
    pub(super) fn watch(&self, plans: watch::Receiver<Arc<Plan>>) {
        let (Some(manager), Some(limit)) = (self.0.clone(), service_manager::watchdog()) else {
            return;
        };
        tokio::spawn(async move {
            loop {
                tokio::time::sleep(limit / 3).await;
                let board = plans.borrow().shared.board.clone();
                let (reports, workers) = board.ask(ReportParts::default()).await;
                let reported = reports.iter().filter(|report| !report.is_of_ended()).count();
                if reported >= workers {
                    let _ = manager.tell("WATCHDOG=1");
                }
            }
        });
    }

    /// Tells of a reload, until the result is dropped.
    pub(super) fn reloading(&self) -> ReloadNotice<'_> {
        let now_us = service_manager::monotonic_us();
        self.tell(&format!("RELOADING=1\nMONOTONIC_USEC={now_us}\nSTATUS=reloading"));
        ReloadNotice(self)
    }

    /// Tells that the server stops.
    pub(super) fn stopping(&self) {
        self.tell("STOPPING=1\nSTATUS=stopping");
    }

    /// Tells that another process is the server from now on.
    pub(super) fn leave_to(&self, pid: i32) {
        self.tell(&format!("MAINPID={pid}"));
    }

    /// Tells that this process is the server again.
    pub(super) fn take_back(&self) {
        self.serving();
    }
}

/// A reload under way.
pub(super) struct ReloadNotice<'a>(&'a Supervision);

impl Drop for ReloadNotice<'_> {
    fn drop(&mut self) {
        self.0.serving();
    }
}

/// Name of a listener's sockets at the manager, which forbids colons.
fn kept_name(listener: &str) -> String {
    let plain = |c: char| if c.is_ascii_alphanumeric() || c == '.' { c } else { '_' };
    KEPT.chars().chain(listener.chars().map(plain)).take(255).collect()
}

/// True for a socket that this server gave the manager to keep.
pub(super) fn is_kept(socket: &Inherited) -> bool {
    socket.name.as_deref().is_some_and(|name| name.starts_with(KEPT))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_kept_sockets_have_no_colons() {
        assert_eq!(kept_name("0.0.0.0:80"), "lighty-0.0.0.0_80");
        assert_eq!(kept_name("[::]:80"), "lighty-_____80");
        assert_eq!(kept_name(&"x".repeat(300)).len(), 255);
    }
}
