//! The manual page lighty(8), made from the description of the command line.

use std::io::{self, Write};

use clap::{Arg, Command, CommandFactory};
use clap_mangen::Man;
use lighty_admin::manual::roff::escape;

use crate::cli::Cli;

/// Writes the page in roff.
///
/// All subcommands are on one page: they are few, and their options fewer.
pub(crate) fn render(out: &mut dyn Write) -> io::Result<()> {
    let mut command = Cli::command().version(env!("CARGO_PKG_VERSION"));
    command.build();
    let man = Man::new(command.clone()).section("8").manual("System administration");
    man.render_title(out)?;
    man.render_name_section(out)?;
    writeln!(
        out,
        ".SH SYNOPSIS\n\\fBlighty\\fR \\fB\\-f\\fR \\fIFILE\\fR [\\fIOPTIONS\\fR]\n.br\n\
         \\fBlighty\\fR \\fICOMMAND\\fR [\\fIARGUMENTS\\fR]"
    )?;
    man.render_options_section(out)?;
    writeln!(out, ".SH COMMANDS")?;
    let commands = command.get_subcommands().filter(|sub| sub.get_name() != "help");
    for sub in commands.filter(|sub| !sub.is_hide_set()) {
        subcommand(sub, "lighty", out)?;
    }
    out.write_all(ENDING.as_bytes())
}

/// Writes a subcommand and its own arguments; the common ones are written above.
fn subcommand(command: &Command, before: &str, out: &mut dyn Write) -> io::Result<()> {
    let name = format!("{before} {}", command.get_name());
    writeln!(out, ".SS {name}")?;
    writeln!(out, "{}", escape(&about(command)))?;
    for arg in command.get_arguments().filter(|arg| !is_help(arg)) {
        writeln!(out, ".TP\n{}\n{}", usage(arg), escape(&arg_help(arg)))?;
    }
    let inner = command.get_subcommands().filter(|sub| sub.get_name() != "help");
    for sub in inner {
        writeln!(out, ".TP\n\\fB{}\\fR\n{}", escape(sub.get_name()), escape(&about(sub)))?;
        // Options that all of them have are above.
        let own = |arg: &&Arg| !is_help(arg) && !arg.is_global_set();
        if sub.get_arguments().any(|arg| own(&arg)) {
            writeln!(out, ".RS")?;
            for arg in sub.get_arguments().filter(own) {
                writeln!(out, ".TP\n{}\n{}", usage(arg), escape(&arg_help(arg)))?;
            }
            writeln!(out, ".RE")?;
        }
    }
    Ok(())
}

fn is_help(arg: &Arg) -> bool {
    arg.get_id() == "help"
}

fn about(command: &Command) -> String {
    command.get_about().map(ToString::to_string).unwrap_or_default()
}

fn arg_help(arg: &Arg) -> String {
    let mut help = arg.get_help().map(ToString::to_string).unwrap_or_default();
    let defaults: Vec<_> = arg.get_default_values().iter().map(|v| v.to_string_lossy()).collect();
    if !defaults.is_empty() && arg.get_action().takes_values() {
        help.push_str(&format!(" [default: {}]", defaults.join(", ")));
    }
    help
}

/// Returns `-H, --header FIELD`, or `[DIR]` for a positional argument.
fn usage(arg: &Arg) -> String {
    let value = arg.get_value_names().and_then(|names| names.first());
    let value = value.map_or(String::new(), |name| format!("\\fI{}\\fR", escape(name)));
    if arg.is_positional() {
        return value;
    }
    let short = arg.get_short().map(|c| format!("\\fB\\-{c}\\fR"));
    let long = arg.get_long().map(|name| format!("\\fB\\-\\-{}\\fR", escape(name)));
    let names: Vec<String> = short.into_iter().chain(long).collect();
    let value = if arg.get_action().takes_values() { format!(" {value}") } else { String::new() };
    format!("{}{value}", names.join(", "))
}

const ENDING: &str = r#".SH SIGNALS
.TP
\fBINT\fR
finish the responses under way, take nothing new, then stop; a second one stops at once
.TP
\fBTERM\fR
stop at once
.TP
\fBHUP\fR
open the log files again
.TP
\fBUSR1\fR
read the configuration again, as \fBlighty reload\fR does
.TP
\fBUSR2\fR
write the counters to the error log
.SH EXIT STATUS
.TP
\fB0\fR
success
.TP
\fB1\fR
the configuration has errors, the server cannot start, or no listener accepts connections any
more
.TP
\fB2\fR
the command line is wrong
.SH FILES
.TP
\fI/etc/lighty/lighty.conf\fR
where the packages put the configuration, see \fBlighty.conf\fR(5); lighty itself has no default
.SH EXAMPLES
.TP
\fBlighty serve /srv/www \-\-listen :8080\fR
serve a directory without a configuration
.TP
\fBlighty \-tt \-f /etc/lighty/lighty.conf\fR
check a configuration and what it names
.SH SEE ALSO
\fBlighty.conf\fR(5), \fBlighttpd\fR(8), \fBspawn\-fcgi\fR(1), \fBsystemd.socket\fR(5)
"#;
