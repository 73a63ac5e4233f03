//! The modules of 1.4 that have hosts.

/// A module of 1.4 that has hosts, in order of evaluation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Family {
    Fastcgi,
    Scgi,
    Ajp13,
    Proxy,
    Sockproxy,
    Wstunnel,
}

impl Family {
    pub(super) const ALL: [Family; 6] = [
        Family::Fastcgi,
        Family::Scgi,
        Family::Ajp13,
        Family::Proxy,
        Family::Sockproxy,
        Family::Wstunnel,
    ];

    pub(super) fn index(self) -> usize {
        self as usize
    }

    /// Returns the name of its directive with hosts.
    pub(super) fn server(self) -> &'static str {
        match self {
            Family::Fastcgi => "fastcgi.server",
            Family::Scgi => "scgi.server",
            Family::Ajp13 => "ajp13.server",
            Family::Proxy => "proxy.server",
            Family::Sockproxy => "sockproxy.server",
            Family::Wstunnel => "wstunnel.server",
        }
    }

    /// Returns the default of `check-local`.
    pub(super) fn checks_local(self) -> bool {
        matches!(self, Family::Fastcgi | Family::Scgi)
    }
}
