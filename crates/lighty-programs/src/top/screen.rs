//! The screen contents.

use std::fmt::Write;
use std::io;

use super::TopOptions;
use super::keys::Key;
use super::sample::Sample;
use super::table::{Order, Row, Tone, View, arrange, bytes, micros, rows, tone};

/// Columns of a table that is not for a terminal.
const PLAIN_COLUMNS: usize = 160;

/// Moves to the top left; the next two clear the rest of a line and of the screen.
const HOME: &str = "\x1b[H";
const CLEAR_LINE: &str = "\x1b[K";
const CLEAR_BELOW: &str = "\x1b[J";
const REVERSE: &str = "\x1b[7m";
const BOLD: &str = "\x1b[1m";
const NORMAL: &str = "\x1b[0m";

/// Colours of rows that need attention; not used if `NO_COLOR` is set.
const RED: &str = "\x1b[31m";
const YELLOW: &str = "\x1b[33m";

const HELP: &str =
    "q quit  ? help  1-6 or tab view  s sort by next column  r reverse  / filter  p pause";

/// Help text for the key `?`.
const HELP_LINES: [&str; 21] = [
    "Keys",
    "  q, Ctrl-C       quit",
    "  1 to 6          routes, stages, backends, workers, connections, hosts",
    "  Tab, Right      next view",
    "  Left            previous view",
    "  s               sort by the next column (marked with *)",
    "  r               reverse the order",
    "  /               filter rows by text in any column; Enter keeps, Escape clears",
    "  Up, Down        scroll one row; PageUp, PageDown: ten rows",
    "  p               pause",
    "  ?, h            show or leave this help",
    "",
    "Views",
    "  routes          modules or status.route names that answered, with percentiles of durations",
    "  stages          where the time of requests went",
    "  backends        backends by upstream; red is down, yellow is probing or drained",
    "  workers         event loops: CPU, connections, longest stall",
    "  connections     clients and their current requests",
    "  hosts           hosts that the configuration names, and all others as one",
    "",
    "req/s, sent/s, cpu and share are rates between two samples; the rest counts from the start",
];

/// Current state of the display.
pub(super) struct State {
    url: String,
    view: View,
    column: usize,
    reversed: bool,
    filter: String,
    /// The filter is being typed.
    is_typing: bool,
    is_paused: bool,
    /// The help is shown instead of the table.
    is_helping: bool,
    has_color: bool,
    /// Number of rows scrolled off the top.
    above: usize,
    now: Option<Sample>,
    before: Option<Sample>,
    failure: Option<String>,
}

impl State {
    pub(super) fn new(options: &TopOptions) -> Self {
        let mut state = Self {
            url: match &options.socket {
                Some(path) => path.display().to_string(),
                None => lighty_fetch::without_credentials(&options.url),
            },
            view: options.view,
            column: 0,
            reversed: false,
            filter: options.filter.clone(),
            is_typing: false,
            is_paused: false,
            is_helping: false,
            has_color: std::env::var_os("NO_COLOR").is_none_or(|value| value.is_empty()),
            above: 0,
            now: None,
            before: None,
            failure: None,
        };
        state.choose(options.view);
        let named = options.sort.as_ref().and_then(|name| options.view.column(name));
        state.column = named.unwrap_or(state.column);
        state
    }

    /// Records a sample, or the reason why there is none.
    pub(super) fn note(&mut self, sample: io::Result<Sample>) {
        match sample {
            Ok(sample) => self.take(sample),
            Err(error) => self.failure = Some(error.to_string()),
        }
    }

    pub(super) fn take(&mut self, sample: Sample) {
        self.failure = None;
        if !self.is_paused {
            self.before = self.now.replace(sample);
        }
    }

    fn choose(&mut self, view: View) {
        (self.view, self.above, self.reversed) = (view, 0, false);
        (_, self.column) = view.columns();
    }

    /// Handles a key. Returns [`Key::Quit`] if it ends the program.
    pub(super) fn press(&mut self, key: Key) -> Key {
        if self.is_typing {
            return self.type_filter(key);
        }
        if self.is_helping && !matches!(key, Key::Quit | Key::Char('q')) {
            self.is_helping = false;
            return key;
        }
        let (columns, _) = self.view.columns();
        let at = View::ALL.iter().position(|view| *view == self.view).unwrap_or(0);
        let views = View::ALL.len();
        match key {
            Key::Quit | Key::Char('q') => return Key::Quit,
            Key::Char(digit @ '1'..='6') => self.choose(View::ALL[digit as usize - '1' as usize]),
            Key::Right => self.choose(View::ALL[(at + 1) % views]),
            Key::Left => self.choose(View::ALL[(at + views - 1) % views]),
            Key::Char('s') => self.column = (self.column + 1) % columns.len(),
            Key::Char('r') => self.reversed = !self.reversed,
            Key::Char('p') => self.is_paused = !self.is_paused,
            Key::Char('/') => self.is_typing = true,
            Key::Char('?' | 'h') => self.is_helping = true,
            Key::Escape => self.filter.clear(),
            Key::Up => self.above = self.above.saturating_sub(1),
            Key::Down => self.above += 1,
            Key::PageUp => self.above = self.above.saturating_sub(10),
            Key::PageDown => self.above += 10,
            _ => {}
        }
        key
    }

    fn type_filter(&mut self, key: Key) -> Key {
        match key {
            Key::Quit => return Key::Quit,
            Key::Enter => self.is_typing = false,
            Key::Escape => {
                self.is_typing = false;
                self.filter.clear();
            }
            Key::Backspace => {
                self.filter.pop();
            }
            Key::Char(one) => self.filter.push(one),
            _ => {}
        }
        self.above = 0;
        key
    }

    /// The whole screen, for a terminal of this width and height.
    pub(super) fn frame(&mut self, (width, height): (usize, usize)) -> String {
        let lines = self.lines(width, height);
        let mut out = String::from(HOME);
        for (at, (style, line)) in lines.iter().take(height).enumerate() {
            let end = if at + 1 == height.min(lines.len()) { "" } else { "\r\n" };
            let _ = write!(out, "{style}{}{NORMAL}{CLEAR_LINE}{end}", cut(line, width));
        }
        out + CLEAR_BELOW
    }

    /// The contents as plain text.
    pub(super) fn plain(&mut self) -> String {
        let lines = self.lines(PLAIN_COLUMNS, usize::MAX);
        lines.iter().map(|(_, line)| format!("{}\n", line.trim_end())).collect()
    }

    fn lines(&mut self, width: usize, height: usize) -> Vec<(&'static str, String)> {
        let Some(now) = &self.now else { return Vec::new() };
        let mut lines = vec![(BOLD, heading(now, &self.url)), ("", figures(now))];
        let is_plain = height == usize::MAX;
        if !is_plain {
            lines.push(("", self.bar()));
        }
        if self.is_helping && !is_plain {
            lines.extend(HELP_LINES.iter().map(|line| ("", (*line).to_owned())));
            return lines;
        }
        let mut table = rows(self.view, now, self.before.as_ref());
        arrange(&mut table, &self.filter, self.column, self.reversed);
        let room = height.saturating_sub(lines.len() + 2);
        self.above = self.above.min(table.len().saturating_sub(room));
        let (columns, _) = self.view.columns();
        let widths = widths(columns, &table, width);
        lines.push((REVERSE, fill(&table_heading(columns, self.column, &widths), width, is_plain)));
        let shown = table.iter().skip(self.above).take(room);
        let style = |row: &Row| match tone(self.view, row) {
            Tone::Bad if self.has_color => RED,
            Tone::Warning if self.has_color => YELLOW,
            _ => "",
        };
        lines.extend(shown.map(|row| (style(row), table_row(row, &widths))));
        if !is_plain {
            lines.resize(height.saturating_sub(1).max(lines.len()), ("", String::new()));
            let failure = self.failure.as_deref();
            lines.push(failure.map_or(("", HELP.to_owned()), |why| (BOLD, why.to_owned())));
        }
        lines
    }

    /// The bar with the views, the sort column, and the filter.
    fn bar(&self) -> String {
        let views = View::ALL.iter().enumerate().map(|(at, view)| match *view == self.view {
            true => format!("[{} {}]", at + 1, view.name()),
            false => format!(" {} {} ", at + 1, view.name()),
        });
        let mut text = views.collect::<Vec<_>>().join("");
        if self.is_typing || !self.filter.is_empty() {
            let cursor = if self.is_typing { "_" } else { "" };
            let _ = write!(text, "  /{}{cursor}", self.filter);
        }
        if self.is_paused {
            text.push_str("  paused");
        }
        text
    }
}

fn heading(now: &Sample, url: &str) -> String {
    let (hours, minutes, seconds) =
        (now.uptime_s / 3600, now.uptime_s / 60 % 60, now.uptime_s % 60);
    let missing = match now.workers_expected.saturating_sub(now.workers.len() as u64) {
        0 => String::new(),
        missing => format!(", {missing} do not answer"),
    };
    format!(
        "lighty {}  {url}  up {hours}:{minutes:02}:{seconds:02}  {} workers{missing}",
        now.version, now.workers_expected
    )
}

fn figures(now: &Sample) -> String {
    let second = &now.second;
    format!(
        "{} requests  {}/s  {} errors/s  {}/s out  p50 {}  p99 {}  {} busy  {} idle  {} waiting",
        now.requests,
        second.requests,
        second.errors,
        bytes(second.bytes_out as f64),
        micros(second.p50_us),
        micros(second.p99_us),
        now.busy,
        now.idle,
        now.waiting,
    )
}

/// Widths of columns: that of their widest cell. If they do not fit, the widest ones shrink.
fn widths(columns: &[&str], table: &[Row], width: usize) -> Vec<usize> {
    let of_column = |at: usize| {
        let cells = table.iter().map(|row| row[at].text.chars().count());
        cells.max().unwrap_or(0).max(columns[at].len() + 1)
    };
    let mut widths: Vec<usize> = (0..columns.len()).map(of_column).collect();
    let room = width.saturating_sub(widths.len() - 1);
    while widths.iter().sum::<usize>() > room {
        let Some(widest) = widths.iter_mut().max().filter(|widest| **widest > 4) else { break };
        *widest -= 1;
    }
    widths
}

fn table_heading(columns: &[&str], sorted: usize, widths: &[usize]) -> String {
    let cell = |(at, (name, width)): (usize, (&&str, &usize))| {
        let mark = if at == sorted { "*" } else { "" };
        let text = cut(&format!("{name}{mark}"), *width);
        // Left-aligned, because no column follows.
        let is_left = at == 0 || matches!(*name, "reason" | "request" | "engine");
        if is_left { format!("{text:<width$}") } else { format!("{text:>width$}") }
    };
    columns.iter().zip(widths).enumerate().map(cell).collect::<Vec<_>>().join(" ")
}

fn table_row(row: &Row, widths: &[usize]) -> String {
    let cell = |(at, (cell, width)): (usize, (&super::table::Cell, &usize))| {
        let text = cut(&cell.text, *width);
        let is_text = matches!(cell.order, Order::Text(_));
        match at == 0 || is_text && at + 1 == widths.len() {
            true => format!("{text:<width$}"),
            false => format!("{text:>width$}"),
        }
    };
    row.iter().zip(widths).enumerate().map(cell).collect::<Vec<_>>().join(" ")
}

fn fill(line: &str, width: usize, is_plain: bool) -> String {
    if is_plain { line.to_owned() } else { format!("{line:<width$}") }
}

fn cut(line: &str, width: usize) -> String {
    line.chars().take(width).collect()
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    fn state() -> State {
        let mut state = State::new(&TopOptions {
            url: "http://u:p@a/s".to_owned(),
            socket: None,
            view: View::Routes,
            sort: Some("requests".to_owned()),
            filter: String::new(),
            interval: Duration::from_secs(1),
            ca_file: None,
            insecure: false,
        });
        let routes = (0..100).map(|n| format!(r#"{{"route":"route-{n:03}","requests":{n}}}"#));
        let routes = routes.collect::<Vec<_>>().join(",");
        let json = format!(r#"{{"version":"1","Uptime":61,"routes":[{routes}]}}"#);
        state.take(Sample::read(json.as_bytes()).expect("a sample"));
        state
    }

    #[test]
    fn a_frame_fits_its_terminal() {
        let mut state = state();
        for (width, height) in [(80, 24), (20, 5), (1, 1), (200, 60)] {
            let frame = state.frame((width, height));
            assert_eq!(frame.matches("\r\n").count(), height - 1, "{width}x{height}");
            let lines = frame.replace(HOME, "").replace(CLEAR_LINE, "").replace(CLEAR_BELOW, "");
            let lines = lines.replace(REVERSE, "").replace(BOLD, "").replace(NORMAL, "");
            let longest = lines.split("\r\n").map(|line| line.chars().count()).max();
            assert!(longest <= Some(width), "{width}x{height}: {lines}");
        }
    }

    #[test]
    fn keys_choose_sort_and_filter() {
        let mut state = state();
        let heading = state.plain().lines().next().unwrap_or_default().to_owned();
        assert!(heading.contains("http://a/s") && !heading.contains("u:p"), "{heading}");
        assert!(state.plain().lines().nth(3).is_some_and(|line| line.starts_with("route-099")));
        state.press(Key::Char('r'));
        assert!(state.plain().lines().nth(3).is_some_and(|line| line.starts_with("route-000")));
        state.press(Key::Char('/'));
        for one in "q42".chars() {
            assert_ne!(state.press(Key::Char(one)), Key::Quit);
        }
        for key in [Key::Backspace; 3] {
            state.press(key);
        }
        "042".chars().for_each(|one| {
            state.press(Key::Char(one));
        });
        state.press(Key::Enter);
        assert_eq!(state.plain().lines().count(), 4, "{}", state.plain());
        state.press(Key::Escape);
        state.press(Key::PageDown);
        assert!(state.frame((80, 24)).contains("route-010"));
        state.press(Key::Right);
        assert!(state.frame((80, 24)).contains("[2 stages]"));
        assert_eq!(state.press(Key::Char('q')), Key::Quit);
    }

    #[test]
    fn backends_show_upstream_reason_and_color() {
        let mut state = state();
        state.has_color = true;
        let json = br#"{"routes":[],"pools":[{"name":"api","backends":[{"address":"10.0.0.1:80",
            "state":"down","why":"status 503"}]},{"name":"web","backends":[{"address":"10.0.0.1:80",
            "state":"up"}]}]}"#;
        state.take(Sample::read(json).expect("a sample"));
        state.press(Key::Char('3'));
        let frame = state.frame((120, 24));
        let down = frame.lines().find(|line| line.contains("status 503")).unwrap_or_default();
        assert!(down.starts_with(RED) && down.contains("api"), "{frame:?}");
        let up = frame.lines().find(|line| line.contains("web")).unwrap_or_default();
        assert!(!up.contains(RED) && !up.contains("api"), "{frame:?}");
        "/api".chars().for_each(|one| {
            state.press(Key::Char(one));
        });
        assert!(!state.frame((120, 24)).contains("web"));
        state.has_color = false;
        assert!(!state.frame((120, 24)).contains(RED));
        assert!(!state.plain().contains(RED));
    }

    #[test]
    fn help_is_shown_and_left() {
        let mut state = state();
        state.press(Key::Char('?'));
        let help = state.frame((120, 24));
        assert!(help.contains("reverse the order") && !help.contains("route-099"), "{help}");
        assert_eq!(state.press(Key::Char('x')), Key::Char('x'));
        assert!(state.frame((120, 24)).contains("route-099"));
        state.press(Key::Char('?'));
        assert_eq!(state.press(Key::Char('q')), Key::Quit);
    }

    #[test]
    fn a_server_that_does_not_answer_is_said() {
        let mut state = state();
        state.note(Err(io::Error::other("a: Connection refused")));
        assert!(state.frame((80, 24)).contains("Connection refused"));
    }
}
