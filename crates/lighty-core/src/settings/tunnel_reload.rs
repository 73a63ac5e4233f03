//! `server.tunnel-reload`: the end of tunnels whose route a reload has removed or changed.

use lighty_config::{Kind, Reject, Scope, Value, parse_int};

use super::{Directive, Settings, limits};

/// Value for tunnels that outlive every reload.
const KEEP: &str = "keep";

/// Value for tunnels that end with their route.
const CLOSE: &str = "close-if-route-gone";

/// Maximum seconds of a tunnel behind a reload.
const SECONDS_MAX: i64 = 86_400 * 365;

/// Ends of tunnels by the server.
#[derive(Clone, Copy, Debug)]
pub struct TunnelSettings {
    /// `server.tunnel-stop-timeout`: seconds that a tunnel may continue after a graceful stop has
    /// begun; 0: no limit.
    pub stop_timeout_s: u32,
    /// `server.tunnel-reload`: effect of a reload.
    pub reload: TunnelReload,
}

impl Default for TunnelSettings {
    fn default() -> Self {
        Self { stop_timeout_s: limits::TUNNEL_STOP_SECONDS, reload: TunnelReload::default() }
    }
}

/// Fate of a tunnel's route in a new configuration.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RouteFate {
    /// The request would get the same upstream, with the same settings.
    Same,
    /// The request would get the same backend, of an upstream with other members or settings.
    Changed,
    /// No route leads the request to this backend.
    Gone,
}

/// Effect of a reload on tunnels.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum TunnelReload {
    /// None.
    #[default]
    Keep,
    /// Tunnels without a route end.
    CloseIfRouteGone,
    /// Tunnels whose route is gone or has changed end after so many seconds.
    After(u32),
}

impl TunnelReload {
    /// Seconds until a tunnel with this fate ends; `None`: it stays.
    pub fn limit_s(self, fate: RouteFate) -> Option<u32> {
        match (self, fate) {
            (Self::Keep, _) | (_, RouteFate::Same) => None,
            (Self::CloseIfRouteGone, RouteFate::Changed) => None,
            (Self::CloseIfRouteGone, RouteFate::Gone) => Some(0),
            (Self::After(seconds), RouteFate::Changed | RouteFate::Gone) => Some(seconds),
        }
    }
}

/// The row of the directive.
pub(super) fn directive() -> Directive {
    Directive::parsed(
        "server.tunnel-reload",
        Kind::String,
        |value, _| parse(value),
        |s: &mut Settings, policy| s.server.tunnels.reload = *policy,
    )
    .scope(Scope::Server)
    .default("keep")
    .since("lighty 0.1")
    .doc(
        "Effect of a reload on tunnels (WebSocket and other upgrades, extended CONNECT, \
         `sockproxy.server`). `keep`: none. `close-if-route-gone`: a tunnel ends if no route of \
         the new configuration leads its request to its backend. A number: a tunnel ends so many \
         seconds after a reload that removed its route, or changed anything of its upstream. \
         Clients of `wstunnel.server` get a close frame with the code 1001.",
    )
    .example("server.tunnel-reload = \"close-if-route-gone\"")
}

fn parse(value: &Value) -> Result<TunnelReload, Reject> {
    match value.as_str() {
        Some(KEEP) => Ok(TunnelReload::Keep),
        Some(CLOSE) => Ok(TunnelReload::CloseIfRouteGone),
        Some(text) if text.parse::<i64>().is_err() => {
            let reject =
                Reject::new(format!("must be \"{KEEP}\", \"{CLOSE}\" or a number of seconds"));
            Err(reject.did_you_mean(text, [KEEP, CLOSE]))
        }
        _ => {
            parse_int(value, &(0..=SECONDS_MAX)).map(|seconds| TunnelReload::After(seconds as u32))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_two_words_or_seconds() {
        let text = |text: &str| parse(&Value::Str(text.into())).map_err(|reject| reject.message);
        let int = |number| parse(&Value::Int(number)).map_err(|reject| reject.message);
        assert_eq!(text("keep"), Ok(TunnelReload::Keep));
        assert_eq!(text("close-if-route-gone"), Ok(TunnelReload::CloseIfRouteGone));
        assert_eq!(int(0), Ok(TunnelReload::After(0)));
        assert_eq!(int(SECONDS_MAX), Ok(TunnelReload::After(31_536_000)));
        assert!(int(-1).is_err() && int(SECONDS_MAX + 1).is_err());
        let message = text("close").expect_err("no value");
        assert!(message.contains("a number of seconds"), "{message}");
    }

    #[test]
    fn only_a_time_ends_tunnels_of_changed_routes() {
        use RouteFate::{Changed, Gone, Same};
        let limits = |policy: TunnelReload| [Same, Changed, Gone].map(|fate| policy.limit_s(fate));
        assert_eq!(limits(TunnelReload::Keep), [None; 3]);
        assert_eq!(limits(TunnelReload::CloseIfRouteGone), [None, None, Some(0)]);
        assert_eq!(limits(TunnelReload::After(7)), [None, Some(7), Some(7)]);
    }
}
