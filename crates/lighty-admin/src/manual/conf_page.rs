//! The manual page lighty.conf(5), made from the table of directives.

use std::collections::BTreeMap;
use std::fmt::Write;

use lighty_config::{Directive, Table};
use lighty_core::Settings;

use super::roff::{blocks, escape, example, inline};
use super::{default, since, title};

/// Returns the page in roff.
#[must_use]
pub fn page(table: &Table<Settings>, version: &str) -> String {
    let mut page = format!(".TH lighty.conf 5 \"\" \"lighty {version}\" \"File formats\"\n");
    // Names are long: without this, lines have wide gaps, and names are broken at their hyphens.
    page.push_str(".ad l\n.nh\n");
    page.push_str(LANGUAGE);
    let mut by_module: BTreeMap<&str, Vec<&Directive<Settings>>> = BTreeMap::new();
    for row in table.iter() {
        by_module.entry(row.module).or_default().push(row);
    }
    for (module, rows) in by_module {
        let _ = writeln!(page, ".SH DIRECTIVES OF {}", escape(&title(module)).to_uppercase());
        rows.iter().for_each(|row| section(&mut page, row));
    }
    planned(&mut page, table);
    page.push_str(ENDING);
    page
}

fn section(page: &mut String, row: &Directive<Settings>) {
    let _ = writeln!(page, ".SS {}", escape(row.name));
    let facts = [
        ("Type", row.kind.describe()),
        ("Default", default(row)),
        ("Where", row.scope.describe().to_owned()),
        ("Since", since(row.since)),
    ];
    let facts = facts.map(|(name, value)| format!("{name}: {}", inline(&value)));
    let _ = writeln!(page, "{}", facts.join("\n.br\n"));
    if !row.aliases.is_empty() {
        let names: Vec<_> =
            row.aliases.iter().map(|name| format!("\\fB{}\\fR", escape(name))).collect();
        let _ = writeln!(page, ".br\nAlso written: {}", names.join(", "));
    }
    page.push_str(&blocks(row.doc));
    page.push_str(&example(row.example));
}

fn planned(page: &mut String, table: &Table<Settings>) {
    page.push_str(
        ".SH KNOWN, NOT AVAILABLE YET\nDirectives of lighttpd that this version does not have. \
         A configuration that uses one loads with a warning; with \\fB\\-\\-strict\\fR it does \
         not load.\n",
    );
    let mut by_module: BTreeMap<&str, Vec<String>> = BTreeMap::new();
    for (name, module) in table.iter_planned() {
        by_module.entry(module).or_default().push(format!("\\fB{}\\fR", escape(name)));
    }
    for (module, names) in by_module {
        let _ = writeln!(page, ".TP\n{}\n{}", escape(module), names.join(", "));
    }
}

/// The language, as docs/manual/configuration.md describes it at length.
const LANGUAGE: &str = r#".SH NAME
lighty.conf \- configuration of the lighty web server
.SH SYNOPSIS
\fB/etc/lighty/lighty.conf\fR
.SH DESCRIPTION
The configuration that \fBlighty \-f\fR \fIFILE\fR reads. It is written in the language of lighttpd, 1.4 and 1.5:
.PP
.RS 4
.EX
server.document\-root = "/srv/www"
server.port          = 80
include "conf.d/*.conf"

$HTTP["host"] == "files.example.org" {
    server.document\-root = "/srv/files"
    dir\-listing.activate = "enable"
}
.EE
.RE
.PP
Check a configuration with \fBlighty \-t \-f\fR \fIFILE\fR, and with \fB\-tt\fR the files, users and addresses that
it names, too. \fBlighty explain\fR \fIURL\fR \fB\-f\fR \fIFILE\fR prints the rules that apply to a URL.
.PP
A build without a part of the server refuses the directives of that part. \fBlighty \-V\fR lists the features of a
build.
.SS Statements
A statement ends with its line. A \fB#\fR begins a comment. Parentheses may span lines.
.TP
\fIname\fR \fB=\fR \fIvalue\fR
sets a directive or a variable; a second time in the same block is an error
.TP
\fIname\fR \fB:=\fR \fIvalue\fR
sets it, and replaces any earlier value
.TP
\fIname\fR \fB+=\fR \fIvalue\fR
appends to the value of this block or of the nearest one around it
.TP
\fBinclude "\fR\fIfile\fR\fB"\fR
reads a file, or all files that match a pattern such as \fBconf.d/*.conf\fR, in the order of their names
.TP
\fBinclude_shell "\fR\fIcommand\fR\fB"\fR
runs a command with the shell and reads its output
.SS Values
.TP
text
\fB"\fR...\fB"\fR; \fB\e"\fR is a quote, every other backslash is a backslash
.TP
number
decimal digits without a unit
.TP
switch
\fB"enable"\fR or \fB"disable"\fR
.TP
array
\fB( "a", "b" )\fR or \fB( "key" => "value" )\fR
.TP
variable
a name without a dot, such as \fBbase\fR in \fBbase + "/www"\fR; \fBenv.NAME\fR is a variable of the environment
.SS Conditions
A block applies to requests for which its condition holds: \fIfield operator\fR \fB"\fR\fItext\fR\fB" {\fR
\&... \fB}\fR. Blocks may contain blocks. \fBelse\fR continues a chain.
.TP
fields
\fB$SERVER["socket"]\fR, \fB$HTTP["scheme"]\fR, \fB$HTTP["host"]\fR, \fB$HTTP["url"]\fR, \fB$HTTP["querystring"]\fR,
\fB$HTTP["remoteip"]\fR, \fB$HTTP["request\-method"]\fR, \fB$HTTP["referer"]\fR, \fB$HTTP["useragent"]\fR,
\fB$HTTP["cookie"]\fR, \fB$HTTP["language"]\fR, \fB$REQUEST_HEADER["\fR\fIName\fR\fB"]\fR, \fB$PHYSICAL["path"]\fR,
\fB$PHYSICAL["existing\-path"]\fR
.TP
operators
\fB==\fR and \fB!=\fR compare the whole value (\fB$HTTP["remoteip"]\fR with a network, too), \fB=\(ha\fR and \fB=$\fR
its beginning and its end; \fB=\(ti\fR and \fB!\(ti\fR match a regular expression
.PP
For each directive the last block that applies counts. \fB$SERVER["socket"] == "\fR\fIaddress\fR\fB"\fR also opens
that listener.
"#;

const ENDING: &str = r".SH FILES
.TP
\fI/etc/lighty/lighty.conf\fR
the configuration of the packages
.TP
\fI/etc/lighty/conf.d/*.conf\fR
a file for each site, which it includes
.TP
\fI/etc/lighty/\fR\fINAME\fR\fI.conf\fR
the configuration of the service \fBlighty@\fR\fINAME\fR
.SH SEE ALSO
\fBlighty\fR(8), \fBlighttpd\fR(8)
";

#[cfg(test)]
mod tests {
    use lighty_core::settings::directives;
    use lighty_server::modules;

    use super::*;

    #[test]
    fn every_directive_has_a_section() {
        let table =
            Table::new().rows(modules::directives()).planned(directives::PLANNED.iter().copied());
        let page = page(&table, "1");
        for row in table.iter() {
            let heading = format!("\n.SS {}\n", escape(row.name));
            assert_eq!(page.matches(&heading).count(), 1, "{}", row.name);
            assert!(page.contains(&example(row.example)), "{}", row.name);
        }
        for (name, _) in table.iter_planned() {
            assert!(page.contains(&format!("\\fB{}\\fR", escape(name))), "{name}");
        }
    }

    /// A line that begins with a dot is a request; an unknown one would hide its text.
    #[test]
    fn only_known_requests_begin_lines() {
        let table = Table::new().rows(modules::directives());
        let known = ["TH", "SH", "SS", "TP", "PP", "IP", "RS", "RE", "EX", "EE", "ad", "br", "nh"];
        for line in page(&table, "1").lines().filter(|line| line.starts_with(['.', '\''])) {
            let request = line[1..].split(' ').next().unwrap_or_default();
            assert!(known.contains(&request), "{line}");
        }
    }
}
