//! Contracts of known services.

/// The contract of a service, as far as it differs from that of others.
#[derive(Debug)]
pub(super) struct Preset {
    /// Its word in the configuration.
    pub(super) word: &'static str,
    /// Path of the service's endpoint, for a URL without one.
    pub(super) path: &'static str,
    /// Fields of a permission that tell of the user.
    pub(super) identity: &'static [&'static str],
    /// The one of them with the user's name; empty: none.
    pub(super) user: &'static str,
    /// The client's fields that the service gets; empty: all.
    pub(super) request: &'static [&'static str],
    /// Page to which a browser without a session is redirected; empty: none.
    pub(super) sign_in: &'static str,
    /// Its endpoint is asked with the client's method.
    pub(super) keeps_method: bool,
    /// The client's path follows that of the endpoint.
    pub(super) appends_target: bool,
    /// It gets the client's Host.
    pub(super) keeps_host: bool,
    /// It gets X-Original-URL, X-Original-URI and X-Original-Method.
    pub(super) tells_original: bool,
    /// It gets Remote-Addr and Remote-Port.
    pub(super) tells_address: bool,
    /// Only 200 permits a request.
    pub(super) only_200: bool,
}

/// A service without a preset: the contract that Traefik and Caddy have in common.
pub(super) const PLAIN: Preset = Preset {
    word: "",
    path: "/",
    identity: &[],
    user: "",
    request: &[],
    sign_in: "",
    keeps_method: false,
    appends_target: false,
    keeps_host: false,
    tells_original: false,
    tells_address: false,
    only_200: false,
};

/// The presets.
pub(super) static PRESETS: [Preset; 6] = [
    Preset {
        word: "authelia",
        path: "/api/authz/forward-auth",
        identity: &["Remote-User", "Remote-Groups", "Remote-Name", "Remote-Email"],
        user: "Remote-User",
        ..PLAIN
    },
    Preset {
        word: "authentik",
        path: "/outpost.goauthentik.io/auth/caddy",
        identity: &["X-authentik-*"],
        user: "X-authentik-username",
        ..PLAIN
    },
    Preset {
        word: "oauth2-proxy",
        path: "/oauth2/auth",
        identity: &["X-Auth-Request-*"],
        user: "X-Auth-Request-User",
        sign_in: "/oauth2/sign_in?rd={uri}",
        ..PLAIN
    },
    Preset {
        word: "tailscale",
        identity: &["Tailscale-*"],
        user: "Tailscale-User",
        tells_address: true,
        ..PLAIN
    },
    Preset {
        word: "envoy",
        request: &["Authorization", "Proxy-Authorization", "Cookie", "Accept"],
        keeps_method: true,
        appends_target: true,
        keeps_host: true,
        only_200: true,
        ..PLAIN
    },
    Preset { word: "nginx", tells_original: true, ..PLAIN },
];

/// A rule without a preset.
pub(super) static NO_PRESET: Preset = PLAIN;

impl Preset {
    /// The preset of a word.
    pub(super) fn of_word(word: &str) -> Option<&'static Self> {
        PRESETS.iter().find(|preset| preset.word == word)
    }

    /// All words.
    pub(super) fn names() -> impl Iterator<Item = &'static str> {
        PRESETS.iter().map(|preset| preset.word)
    }
}
