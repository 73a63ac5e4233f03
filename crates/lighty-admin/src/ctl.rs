//! `lighty ctl`: queries and changes of a running server over its control socket.

mod bad_messages;

use std::path::{Path, PathBuf};
use std::time::Duration;

use lighty_http::uri::encode_component;
use lighty_io::clock::deadline::Deadline;
use lighty_server::control::client::{CallError, call};
use lighty_server::reload::SANDBOX;
use serde_json::{Value, json};

/// Interval of looks at a backend that is drained.
const LOOK: Duration = Duration::from_millis(200);

/// A query or a change.
#[derive(Clone, Debug)]
pub enum Verb {
    /// GET of a path, such as `/status`.
    Query(&'static str),
    /// The status, as a check: its result is an error while the server is not ready.
    CheckReady,
    /// Readiness off, or on again.
    DrainSelf {
        /// The readiness URL says 503.
        on: bool,
    },
    /// Closes a route for a while, or opens it again.
    Maintenance {
        /// The route's name.
        route: String,
        /// Close it.
        on: bool,
        /// File with the page of its requests.
        page: Option<PathBuf>,
    },
    /// POST to a path without arguments, such as `/reload`.
    Change(&'static str),
    /// Read the configuration again; if only the sandbox of the process is in the way, let a new
    /// process take its place.
    ReloadOrUpgrade,
    /// Let a new process take the server's place.
    Upgrade {
        /// Path of another program.
        binary: Option<PathBuf>,
    },
    /// A stop; `now`: without waiting for the responses under way.
    Stop {
        /// Stop at once.
        now: bool,
    },
    /// Another use of a backend.
    Backend(BackendVerb),
    /// GET of a path with parameters.
    Find {
        /// The path.
        path: &'static str,
        /// Names and values.
        parameters: Vec<(&'static str, String)>,
    },
    /// POST to a path.
    Post {
        /// The path.
        path: &'static str,
        /// A JSON object.
        body: Value,
    },
}

impl Verb {
    /// True if its result is a table or JSON.
    pub fn is_query(&self) -> bool {
        // Metrics are no JSON in any case, and differences are one on each line.
        match self {
            Self::Query(path) => !["/metrics", "/reload/dry-run"].contains(path),
            other => matches!(other, Self::CheckReady | Self::Find { .. }),
        }
    }

    /// Writes its response for people.
    pub fn text(&self, response: &Value) -> String {
        match self {
            Self::Query("/errors") => bad_messages::text(response),
            Self::Query("/configuration") | Self::Find { path: "/explain", .. } => {
                response["text"].as_str().unwrap_or_default().to_owned()
            }
            Self::Query("/dump") => format!("{response:#}\n"),
            _ => text(response),
        }
    }
}

/// Another use of a backend.
#[derive(Clone, Debug)]
pub struct BackendVerb {
    /// The path, such as `/backends/drain`.
    pub path: &'static str,
    /// Address or name of the backend.
    pub backend: String,
    /// Its upstream, if several have such a backend.
    pub upstream: Option<String>,
    /// Its weight, where the path is `/backends/weight` or `/backends/add`.
    pub weight: Option<u32>,
    /// Its maximum number of connections, where the path is `/backends/limit`.
    pub limit: Option<u32>,
    /// The order outlives the server.
    pub keep: bool,
    /// Time to wait until no request is under way at it.
    pub wait: Option<Duration>,
}

/// Reason why a verb has no result.
#[derive(Debug, thiserror::Error)]
pub enum CtlError {
    /// The server refused it, or did not reply.
    #[error(transparent)]
    Call(#[from] CallError),
    /// The sandbox refused the reload, and the upgrade in its place failed.
    #[error("reload refused:\n{refusal}\nupgrade refused: {upgrade}")]
    NeitherReloadNorUpgrade {
        /// The reasons against the reload.
        refusal: String,
        /// The reason against the upgrade.
        upgrade: CallError,
    },
    /// The page cannot be read.
    #[error("{path}: {1}", path = .0.display())]
    Page(PathBuf, std::io::Error),
    /// The server is not ready, for these reasons.
    #[error("not ready: {0}")]
    NotReady(String),
    /// Requests were still under way after the time to wait.
    #[error("requests under way at {backend}: {requests}")]
    Busy {
        /// The backend.
        backend: String,
        /// Number of requests.
        requests: u64,
    },
}

/// Performs a verb. Returns the server's JSON.
///
/// # Errors
/// The server refused it, its outcome is unknown, or a wait was in vain.
pub fn perform(socket: &Path, verb: &Verb) -> Result<Value, CtlError> {
    Ok(match verb {
        Verb::Query(path) => call(socket, "GET", path, &Value::Null)?,
        Verb::CheckReady => check_ready(call(socket, "GET", "/status", &Value::Null)?)?,
        Verb::DrainSelf { on } => call(socket, "POST", "/drain-self", &json!({ "on": on }))?,
        Verb::Maintenance { route, on, page } => {
            call(socket, "POST", "/routes/maintenance", &closing(route, *on, page.as_deref())?)?
        }
        Verb::Change(path) => call(socket, "POST", path, &json!({}))?,
        Verb::ReloadOrUpgrade => reload_or_upgrade(socket)?,
        Verb::Upgrade { binary } => call(socket, "POST", "/upgrade", &json!({ "binary": binary }))?,
        Verb::Stop { now } => call(socket, "POST", "/stop", &json!({ "now": now }))?,
        Verb::Backend(verb) => change_backend(socket, verb)?,
        Verb::Find { path, parameters } => {
            call(socket, "GET", &target(path, parameters), &Value::Null)?
        }
        Verb::Post { path, body } => call(socket, "POST", path, body)?,
    })
}

/// Reloads, or upgrades if the sandbox alone refuses the reload. The member `outcome` of the result
/// is `reloaded` or `upgraded`.
fn reload_or_upgrade(socket: &Path) -> Result<Value, CtlError> {
    let refusal = match call(socket, "POST", "/reload", &json!({})) {
        Ok(done) => return Ok(with_outcome("reloaded", done["message"].clone())),
        Err(CallError::Refused { reason, kind }) if kind.as_deref() == Some(SANDBOX) => reason,
        Err(other) => return Err(other.into()),
    };
    match call(socket, "POST", "/upgrade", &json!({})) {
        Ok(done) => {
            let text = format!(
                "the sandbox of the process refused the reload, upgraded instead: {}",
                cell(&done["message"])
            );
            Ok(with_outcome("upgraded", Value::String(text)))
        }
        Err(upgrade) => Err(CtlError::NeitherReloadNorUpgrade { refusal, upgrade }),
    }
}

fn with_outcome(outcome: &str, message: Value) -> Value {
    json!({ "outcome": outcome, "message": message })
}

/// The body of a request that closes or opens a route. The page is read here, with the rights of
/// the caller.
fn closing(route: &str, on: bool, page: Option<&Path>) -> Result<Value, CtlError> {
    let read = |path: &Path| {
        std::fs::read_to_string(path).map_err(|error| CtlError::Page(path.to_owned(), error))
    };
    let page = page.map(read).transpose()?;
    Ok(json!({ "route": route, "on": on, "page": page }))
}

fn check_ready(status: Value) -> Result<Value, CtlError> {
    if status["ready"] == Value::Bool(true) {
        return Ok(status);
    }
    let reasons = status["not_ready"].as_array().map_or(&[][..], Vec::as_slice);
    Err(CtlError::NotReady(reasons.iter().map(cell).collect::<Vec<_>>().join(", ")))
}

/// A path with a query.
fn target(path: &str, parameters: &[(&str, String)]) -> String {
    let encoded = |value: &str| {
        let mut bytes = Vec::new();
        encode_component(value.as_bytes(), &mut bytes);
        String::from_utf8_lossy(&bytes).into_owned()
    };
    let pairs = parameters.iter().map(|(name, value)| format!("{name}={}", encoded(value)));
    let query = pairs.collect::<Vec<_>>().join("&");
    if query.is_empty() { path.to_owned() } else { format!("{path}?{query}") }
}

fn change_backend(socket: &Path, verb: &BackendVerb) -> Result<Value, CtlError> {
    let mut body = json!({ "backend": verb.backend });
    if let Some(upstream) = &verb.upstream {
        body["upstream"] = json!(upstream);
    }
    if let Some(weight) = verb.weight {
        body["weight"] = json!(weight);
    }
    if let Some(limit) = verb.limit {
        body["limit"] = json!(limit);
    }
    if verb.keep {
        body["keep"] = json!(true);
    }
    let done = call(socket, "POST", verb.path, &body)?;
    if let Some(patience) = verb.wait {
        await_idle(socket, &done, patience)?;
    }
    Ok(done)
}

/// Waits until no request is under way at the backend of a change.
fn await_idle(socket: &Path, changed: &Value, patience: Duration) -> Result<(), CtlError> {
    let deadline = Deadline::after(patience);
    loop {
        let backends = call(socket, "GET", "/backends", &Value::Null)?;
        let requests = requests_at(&backends, changed);
        if requests == 0 {
            return Ok(());
        }
        if deadline.is_over() {
            return Err(CtlError::Busy { backend: cell(&changed["backend"]), requests });
        }
        std::thread::sleep(LOOK.min(deadline.left()));
    }
}

/// Requests under way at a backend. A backend that a reload has removed has none.
fn requests_at(backends: &Value, changed: &Value) -> u64 {
    let is_named =
        |row: &&Value| ["upstream", "backend"].iter().all(|key| row[*key] == changed[*key]);
    let rows = backends.as_array().map_or(&[][..], Vec::as_slice);
    rows.iter().filter(is_named).filter_map(|row| row["in_use"].as_u64()).sum()
}

/// Writes a response: a message, `key: value` lines, or a table.
fn text(value: &Value) -> String {
    match value {
        Value::Object(members) => match members.get("message").and_then(Value::as_str) {
            Some(message) => format!("{message}\n"),
            None if members.contains_key("changes") => differences(value).unwrap_or_default(),
            None => sorted_keys(members).iter().map(|key| member(key, &members[*key])).collect(),
        },
        Value::Array(rows) => table(rows),
        Value::String(text) => text.clone(),
        other => format!("{}\n", cell(other)),
    }
}

/// Returns the reasons for which a dry run expects a refusal; `None` for other responses.
pub fn expected_refusal(value: &Value) -> Option<&str> {
    let is_refused = value.get("outcome").and_then(Value::as_str) == Some("refused");
    value.get("diagnostics").and_then(Value::as_str).filter(|_| is_refused)
}

/// Writes the differences of a dry run, one on each line.
fn differences(value: &Value) -> Option<String> {
    let changes = value.get("changes")?.as_array()?;
    let lines = changes.iter().map(|change| format!("{}\n", cell(&change["text"])));
    let text: String = lines.collect();
    let warnings = match expected_refusal(value) {
        Some(_) => "",
        None => value.get("diagnostics").and_then(Value::as_str).unwrap_or_default(),
    };
    Some(if text.is_empty() {
        format!("{warnings}no changes\n")
    } else {
        warnings.to_owned() + &text
    })
}

/// Members in the order of lines and columns; others follow in the order of their names.
const ORDER: &[&str] = &[
    "version",
    "pid",
    "uptime_s",
    "ready",
    "not_ready",
    "closed_routes",
    "generation",
    "generation_age_s",
    "last_reload_succeeded",
    "last_reload_age_s",
    "reloads",
    "refused_reloads",
    "old_generations",
    "sandbox",
    "layer",
    "log_level",
    "log_level_for_s",
    "log_levels",
    "module",
    "hanging_workers",
    "workers",
    "id",
    "worker",
    "upstream",
    "backend",
    "name",
    "client",
    "state",
    "for_s",
    "weight",
    "in_use",
    "idle",
    "waiting",
    "requests",
    "failed",
    "connections",
    "protocol",
    "method",
    "host",
    "bytes",
    "days_left",
];

/// Members whose texts are long: they come last.
const LAST: &[&str] = &["target", "why"];

fn sorted_keys(members: &serde_json::Map<String, Value>) -> Vec<&str> {
    let mut keys: Vec<_> = members.keys().map(String::as_str).collect();
    let place = |key: &&str| {
        let place = ORDER.iter().position(|known| known == key).unwrap_or(ORDER.len());
        (LAST.contains(key), place)
    };
    keys.sort_by_key(place);
    keys
}

fn member(key: &str, value: &Value) -> String {
    match value {
        Value::Array(rows) if rows.iter().any(Value::is_object) => {
            let lines = table(rows);
            let indented = lines.lines().map(|line| format!("  {line}\n"));
            format!("{key}:\n{}", indented.collect::<String>())
        }
        Value::Array(items) => {
            let items: Vec<_> = items.iter().map(cell).collect();
            format!("{key}: {}\n", if items.is_empty() { "none".into() } else { items.join(", ") })
        }
        other => format!("{key}: {}\n", cell(other)),
    }
}

/// A table of objects with the same members; the last column is not padded.
fn table(rows: &[Value]) -> String {
    let Some(first) = rows.first().and_then(Value::as_object) else { return String::new() };
    let titles = sorted_keys(first);
    let cells = |row: &Value| titles.iter().map(|title| cell(&row[title])).collect::<Vec<_>>();
    let mut lines = vec![titles.iter().map(ToString::to_string).collect()];
    lines.extend(rows.iter().map(cells));
    let width = |column: usize| {
        lines.iter().map(|line: &Vec<String>| line[column].chars().count()).max().unwrap_or(0)
    };
    let widths: Vec<_> = (0..titles.len()).map(width).collect();
    let mut text = String::new();
    for line in &lines {
        let padded = line.iter().zip(&widths).map(|(cell, width)| format!("{cell:<width$}"));
        text += padded.collect::<Vec<_>>().join("  ").trim_end();
        text.push('\n');
    }
    text
}

/// A value in a cell. Control characters are escaped: a terminal must not obey a client's bytes.
fn cell(value: &Value) -> String {
    let text = match value {
        Value::Null => String::new(),
        Value::String(text) => text.clone(),
        other => other.to_string(),
    };
    text.chars().map(|c| if c.is_control() { '\u{fffd}' } else { c }).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn responses_are_messages_lines_and_tables() {
        assert_eq!(text(&json!({ "message": "done" })), "done\n");
        assert_eq!(text(&json!([])), "");
        let rows = json!([{ "a": "x", "b": 10 }, { "a": "long\u{1b}", "b": null }]);
        assert_eq!(text(&rows), "a      b\nx      10\nlong\u{fffd}\n");
        let object = json!({ "n": 1, "none": [], "rows": [{ "k": 2 }] });
        assert_eq!(text(&object), "n: 1\nnone: none\nrows:\n  k\n  2\n");
    }

    #[test]
    fn dry_run_lists_differences_and_the_expected_refusal() {
        let change = json!({ "text": "add listener [::]:81", "object": "listener" });
        let done = |outcome: &str, changes: &[&Value]| json!({ "outcome": outcome, "diagnostics": "why\n", "changes": changes });
        let reloads = done("reloads", &[&change]);
        assert_eq!(
            (text(&reloads).as_str(), expected_refusal(&reloads)),
            ("why\nadd listener [::]:81\n", None)
        );
        assert_eq!(text(&done("reloads", &[])), "why\nno changes\n");
        let refused = done("refused", &[&change]);
        assert_eq!(text(&refused), "add listener [::]:81\n");
        assert_eq!(expected_refusal(&refused), Some("why\n"));
    }

    #[test]
    fn parameters_are_encoded() {
        let parameters = [("state", "read head".to_owned()), ("client", "::1".to_owned())];
        assert_eq!(
            target("/connections", &parameters),
            "/connections?state=read%20head&client=%3A%3A1"
        );
        assert_eq!(target("/connections", &[]), "/connections");
    }

    #[test]
    fn requests_under_way_are_those_of_the_named_backend() {
        let backends = json!([
            { "upstream": "a", "backend": "10.0.0.1:80", "in_use": 2 },
            { "upstream": "b", "backend": "10.0.0.1:80", "in_use": 3 },
            { "upstream": "b", "backend": "10.0.0.2:80", "in_use": 4 },
        ]);
        let named = |upstream| json!({ "upstream": upstream, "backend": "10.0.0.1:80" });
        assert_eq!(requests_at(&backends, &named("a")), 2);
        assert_eq!(requests_at(&backends, &named("b")), 3);
        assert_eq!(requests_at(&backends, &named("c")), 0);
    }
}
