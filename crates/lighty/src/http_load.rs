//! The command line of ACME Laboratories' http_load.

use std::ffi::OsString;

/// Name of the binary as http_load.
pub(crate) const NAME: &str = "http_load";

/// Options, their equivalents of `lighty load`, and true if a value follows.
const OPTIONS: [(&str, &[&str], bool); 7] = [
    ("-parallel", &["--connections"], true),
    ("-rate", &["--rate"], true),
    ("-fetches", &["--requests"], true),
    ("-seconds", &["--duration"], true),
    ("-timeout", &["--timeout"], true),
    ("-checksum", &["--checksum"], false),
    ("-verbose", &["--progress"], false),
];

/// Options without an equivalent.
const MISSING: [&str; 5] = ["-throttle", "-jitter", "-proxy", "-sip", "-cipher"];

/// Maximum number of connections with `-rate`, which opens as many as it needs.
const CONNECTIONS_OF_RATE: &str = "1000";

/// Returns true if arguments of `lighty load` are in http_load's form.
pub(crate) fn is_meant(arguments: &[OsString]) -> bool {
    let is_option = |word: &OsString| OPTIONS.iter().any(|(name, ..)| word == name);
    arguments.iter().any(is_option)
}

/// Returns the equivalent arguments of `lighty load`.
pub(crate) fn translate(arguments: &[OsString]) -> Result<Vec<OsString>, Wrong> {
    let mut out: Vec<OsString> =
        ["load", "--http-load", "--no-keep-alive", "--same-length"].map(OsString::from).to_vec();
    let (mut starts, mut ends, mut file) = (0, 0, None);
    let mut arguments = arguments.iter();
    while let Some(word) = arguments.next() {
        let text = word.to_string_lossy();
        if !text.starts_with('-') {
            if file.replace(word.clone()).is_some() {
                return Err(Wrong::Form);
            }
            continue;
        }
        // Like the original, options may be abbreviated.
        let is_meant = |name: &str| text.len() > 1 && name.starts_with(&*text);
        if let Some(name) = MISSING.iter().find(|name| is_meant(name))
            && !OPTIONS.iter().any(|(name, ..)| is_meant(name))
        {
            return Err(Wrong::Missing(name));
        }
        let found = OPTIONS.iter().find(|(name, ..)| is_meant(name));
        let (name, ours, has_value) = found.ok_or(Wrong::Form)?;
        out.extend(ours.iter().map(OsString::from));
        if *has_value {
            out.push(arguments.next().ok_or(Wrong::Form)?.clone());
        }
        starts += usize::from(matches!(*name, "-parallel" | "-rate"));
        ends += usize::from(matches!(*name, "-fetches" | "-seconds"));
        if *name == "-rate" {
            out.extend(["--connections", CONNECTIONS_OF_RATE].map(OsString::from));
        }
    }
    let file = file.filter(|_| (starts, ends) == (1, 1)).ok_or(Wrong::Form)?;
    out.push("--urls-from".into());
    out.push(file);
    Ok(out)
}

/// Error in a command line.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum Wrong {
    /// It has another form.
    #[error(
        "usage: http_load [-checksum] [-verbose] [-timeout SECONDS] ( -parallel N | -rate N ) \
         ( -fetches N | -seconds N ) URL_FILE"
    )]
    Form,
    /// It has an option without an equivalent.
    #[error("{0} is an option of http_load that lighty has not")]
    Missing(&'static str),
}

#[cfg(test)]
mod tests {
    use super::*;

    fn translated(line: &str) -> Result<String, Wrong> {
        let arguments: Vec<OsString> = line.split(' ').map(OsString::from).collect();
        let joined = |arguments: Vec<OsString>| {
            arguments
                .iter()
                .skip(4)
                .map(|word| word.to_string_lossy())
                .collect::<Vec<_>>()
                .join(" ")
        };
        translate(&arguments).map(joined)
    }

    #[test]
    fn options_are_translated() {
        let wanted = "--connections 5 --requests 100 --urls-from urls";
        assert_eq!(translated("-parallel 5 -fetches 100 urls").as_deref(), Ok(wanted));
        assert_eq!(translated("-p 5 -f 100 urls").as_deref(), Ok(wanted));
        let wanted = "--checksum --rate 7 --connections 1000 --duration 2 --urls-from u";
        assert_eq!(translated("-checksum -rate 7 -seconds 2 u").as_deref(), Ok(wanted));
    }

    #[test]
    fn wrong_lines_are_told() {
        for line in [
            "-parallel 5 urls",
            "-parallel 5 -rate 2 -f 1 u",
            "-p 5 -f 1",
            "-p 5 -f 1 a b",
            "-p",
            "-what 5 -f 1 u",
            "- -p 5 -f 1 u",
        ] {
            assert_eq!(translated(line), Err(Wrong::Form), "{line}");
        }
        let missing = translated("-throttle -p 5 -f 1 u");
        assert_eq!(missing, Err(Wrong::Missing("-throttle")));
        assert!(is_meant(&["-parallel".into()]) && !is_meant(&["-c".into(), "-p".into()]));
    }
}
