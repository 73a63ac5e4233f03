//! Writes a page of tables: responses to bad requests, other failures, and every limit.

use std::fmt::Write;

use lighty_config::{Directive, Kind, Table};
use lighty_core::fault::{Blame, Fate};
use lighty_core::settings::limits;
use lighty_core::{Fault, Settings};
use lighty_http::Status;
use lighty_http::range;
use lighty_http::uri::UriFault;
use lighty_wire::cgi;
use lighty_wire::http1::chunked::{self, ChunkFault};
use lighty_wire::http1::{RequestFault, request};

use super::{GENERATED, link};

/// Renders the page.
pub(super) fn page(table: &Table<Settings>) -> String {
    let mut page = format!(
        "{GENERATED}# Refusals and limits\n\n\
         The details of [Requests](requests.md): refused requests, errors and limits. The error log \
         has the names of the first column.\n\n"
    );
    heads(&mut page);
    chunks(&mut page);
    faults(&mut page);
    movable_limits(&mut page, table);
    fixed_limits(&mut page);
    language_limits(&mut page);
    page.truncate(page.trim_end().len());
    page.push('\n');
    page
}

fn heads(page: &mut String) {
    page.push_str(
        "## Request heads that are refused\n\n\
         lighty sends the response and closes the connection, whatever such a request asks for, \
         because the beginning of the next request is uncertain.\n\n\
         | name | status | fault |\n|---|---|---|\n",
    );
    for fault in RequestFault::ALL {
        let status = fault.status();
        let _ = row(page, fault.slug(), &named(status), fault.message());
    }
    for fault in UriFault::ALL {
        let fault = RequestFault::from(*fault);
        let _ = row(page, fault.slug(), &named(fault.status()), fault.message());
    }
    page.push('\n');
}

fn chunks(page: &mut String) {
    page.push_str(
        "## Chunked bodies that are refused\n\n\
         Found while a handler reads the body; the connection is closed. A body that no handler \
         reads is not checked: the response goes out and the connection is closed after it.\n\n\
         | name | fault |\n|---|---|\n",
    );
    for fault in ChunkFault::ALL {
        let _ = writeln!(page, "| `{}` | {} |", fault.slug(), fault.message());
    }
    page.push('\n');
}

fn named(status: Status) -> String {
    format!("{status} {}", status.reason())
}

fn row(page: &mut String, name: &str, status: &str, message: &str) -> std::fmt::Result {
    writeln!(page, "| `{name}` | {status} | {message} |")
}

fn faults(page: &mut String) {
    page.push_str(
        "## All other errors\n\n\
         *To blame* is the party at fault, which decides the level in the error log: a client can \
         fill no log above `notice`. *Cut* means that a response had begun and cannot be \
         completed, so the connection ends without another byte.\n\n\
         | event | status | to blame | log level | connection |\n|---|---|---|---|---|\n",
    );
    for fault in Fault::ALL {
        let verdict = fault.verdict();
        let status = verdict.status.map_or_else(|| "none".to_owned(), named);
        let blame = match verdict.blame {
            Blame::Client => "client",
            Blame::Operator => "configuration or files",
            Blame::Backend => "backend",
            Blame::Machine => "machine",
            Blame::Us => "lighty",
        };
        let fate = match verdict.fate {
            Fate::Keep => "stays",
            Fate::Close => "closes",
            Fate::Cut => "is cut",
        };
        let _ = writeln!(
            page,
            "| {} | {status} | {blame} | {} | {fate} |",
            verdict.message,
            verdict.level.name()
        );
    }
    page.push('\n');
}

/// Every numeric directive except a port is a limit of some kind.
fn movable_limits(page: &mut String, table: &Table<Settings>) {
    page.push_str(
        "## Limits with a directive\n\n| directive | default | meaning |\n|---|---|---|\n",
    );
    let is_limit = |row: &&Directive<Settings>| {
        matches!(row.kind, Kind::Int { .. }) && row.name != "server.port"
    };
    for row in table.iter().filter(is_limit) {
        let _ = writeln!(
            page,
            "| {} | {} | {} |",
            link(row, "directives/"),
            row.default,
            row.doc.replace('\n', " ")
        );
    }
    page.push('\n');
}

const OF_HEAD: &str = "bytes of request line and header fields together; \
                       `server.max-request-field-size` above 24576 allows it and 8192 more";

fn fixed_limits(page: &mut String) {
    page.push_str("## Fixed limits\n\n| limit | unit | beyond it |\n|---|---|---|\n");
    let rows = [
        (limits::HEAD_BYTES_MAX as u64, OF_HEAD, "431"),
        (u64::from(request::LEADING_LINES_MAX), "empty lines before a request line", "400"),
        (request::METHOD_BYTES_MAX as u64, "bytes of a method", "400"),
        (
            u64::from(chunked::SIZE_DIGITS_MAX),
            "digits of a chunk's size, leading zeros included",
            "refused",
        ),
        (u64::from(chunked::EXTENSION_BYTES_MAX), "bytes of a chunk's extensions", "refused"),
        (
            chunked::OVERHEAD_BYTES_MAX,
            "bytes of chunk framing beyond what the data explains",
            "refused",
        ),
        (chunked::TRAILER_BYTES_MAX as u64, "bytes of the trailer section", "refused"),
        (chunked::TRAILERS_MAX as u64, "trailer fields", "refused"),
        (range::RANGES_MAX as u64, "ranges in one request", "the whole file is sent"),
        (
            range::RANGE_OVERLAPS_MAX as u64,
            "ranges that overlap an earlier one",
            "the whole file is sent",
        ),
        (
            limits::DRAIN_BYTES_MAX,
            "bytes of an unread request body that are read and dropped",
            "the connection closes behind the response",
        ),
        (
            u64::from(limits::PIPELINE_BURST_MAX),
            "pipelined requests in a row",
            "other connections get their turn",
        ),
        (u64::from(limits::RESTARTS_MAX), "restarts of one request", "500"),
        (u64::from(limits::REWRITES_MAX), "rewrites of one request by `url.rewrite-repeat`", "500"),
        (limits::REWRITTEN_BYTES_MAX as u64, "bytes of a rewritten URL", "500"),
        (cgi::HEAD_BYTES_MAX as u64, "bytes of the head of a backend's response", "502"),
        (u64::from(cgi::HEAD_LINES_MAX), "lines of the head of a backend's response", "502"),
        (u64::from(limits::INTERIM_MAX), "interim responses of a backend to one request", "502"),
        (limits::SENDFILE_PARTS_MAX as u64, "parts in one `X-Sendfile2`", "502"),
        (
            limits::ERROR_PAGE_BYTES_MAX as u64,
            "bytes of a page of `server.errorfile-prefix`",
            "a built-in page is sent, and the log says so",
        ),
        (limits::ROOTS_MAX as u64, "document roots a worker holds open", "they are opened anew"),
    ];
    for (limit, of_what, beyond) in rows {
        let _ = writeln!(page, "| {limit} | {of_what} | {beyond} |");
    }
    page.push('\n');
}

fn language_limits(page: &mut String) {
    use lighty_config::limits as language;
    page.push_str(
        "## Limits of a configuration\n\n\
         Beyond each of them the configuration is refused with a message that names the limit.\n\n\
         | limit | unit |\n|---|---|\n",
    );
    let rows = [
        (language::FILE_BYTES_MAX, "bytes of one file"),
        (language::TOTAL_BYTES_MAX, "bytes of all files together"),
        (language::FILES_MAX, "files"),
        (language::INCLUDE_DEPTH_MAX, "includes within each other"),
        (language::NESTING_MAX, "arrays and blocks within each other"),
        (language::CONDITIONS_MAX, "conditions"),
        (language::VALUE_BYTES_MAX, "bytes of one value that variables and `+` build"),
        (language::REGEX_BYTES_MAX, "bytes of one compiled regular expression"),
        (language::DIAGNOSTICS_MAX, "errors and warnings that are printed; more are counted"),
    ];
    for (limit, of_what) in rows {
        let _ = writeln!(page, "| {limit} | {of_what} |");
    }
}
