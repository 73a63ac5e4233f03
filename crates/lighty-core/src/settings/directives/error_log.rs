//! Directives of logs: levels of single modules, repeated lines, rotation.

use std::sync::Arc;

use lighty_config::{
    CompileCtx, Kind, Reject, Scope, Spanned, Value, parse_choice, parse_int, parse_string,
};
use lighty_io::log_writer::{KEPT_FILES_MAX, Rotation};

use crate::log::Level;
use crate::log::levels::LogModule;
use crate::settings::Directive;
use crate::settings::limits::{ERROR_LOG_REPEATS_LIMIT, ROTATED_FILES};

pub(super) fn rows() -> Vec<Directive> {
    vec![levels(), repeats(), rotation()]
}

fn repeats() -> Directive {
    Directive::int("server.errorlog-max-repeats", 0..=ERROR_LOG_REPEATS_LIMIT, |s, v| {
        s.server.errorlog_repeats_max = v as u32;
    })
    .scope(Scope::Server)
    .default("100")
    .since("lighty 0.1")
    .doc(
        "Lines with the same message from the same place in the program that a minute of the error \
         log has, whatever clients and URLs they name. Further ones are counted, and a line at the \
         end of the minute has their number. Lines of level `debug` and of the `debug.log-` \
         directives are not limited. 0: no limit.",
    )
    .example("server.errorlog-max-repeats = 10")
}

fn levels() -> Directive {
    Directive::parsed("server.errorlog-levels", Kind::Map, parse_levels, |s, levels| {
        s.server.errorlog_levels = Arc::clone(levels);
    })
    .scope(Scope::Server)
    .default("()")
    .since("lighty 0.1")
    .doc(
        "Levels of single modules in the error log, in place of `server.errorlog-level`. A module \
         is one of `core` (requests, from the parsed head to the response), `server` (start, \
         connections, reloads), `io` (files and sockets), `tls`, `control`, `proxy`, `acme`, or a \
         module such as `cgi` or `mod_webdav`.",
    )
    .example("server.errorlog-levels = ( \"proxy\" => \"debug\", \"tls\" => \"error\" )")
}

type ModuleLevels = Arc<[(LogModule, Level)]>;

fn parse_levels(value: &Value, _: &CompileCtx) -> Result<ModuleLevels, Reject> {
    let pairs = value.as_pairs().ok_or_else(|| {
        Reject::new("must be an array of modules and levels")
            .help("write `( \"proxy\" => \"debug\" )`")
    })?;
    let parse = |(name, level): (&str, &Spanned<Value>)| {
        let module = LogModule::of_name(name).ok_or_else(|| {
            Reject::new(format!("\"{name}\" is no module of the error log"))
                .did_you_mean(name, LogModule::names().iter().copied())
                .at(level.span)
        })?;
        let index = parse_choice(&level.value, Level::NAMES).map_err(|why| why.at(level.span))?;
        Ok((module, Level::ALL[index]))
    };
    pairs.into_iter().map(parse).collect()
}

fn rotation() -> Directive {
    Directive::parsed("server.log-rotate", Kind::Map, parse_rotation, |s, rotation| {
        s.server.log_rotation = *rotation;
    })
    .scope(Scope::Server)
    .default("()")
    .since("lighty 0.1")
    .doc(
        "Rotates the files of the error log and of all access logs. `size` is the number of bytes \
         that a file may have (`500K`, `100M`, `2G`), `age` the time since it was made (`90s`, \
         `30m`, `12h`, `1d`, `1w`), `keep` the number of old files, 7 by default, 1000 at most. \
         `access.log` becomes `access.log.1`, and that `access.log.2`. A file that is old enough \
         is rotated before its next line. The user of the server must be able to write into the \
         directory. Commands, syslog and standard streams are not rotated. Empty: no rotation.",
    )
    .example("server.log-rotate = ( \"size\" => \"100M\", \"age\" => \"1d\", \"keep\" => 7 )")
}

/// Factors of the units of sizes.
const SIZES: &[(&str, u64)] = &[("K", 1 << 10), ("M", 1 << 20), ("G", 1 << 30)];

/// Factors of the units of times.
const TIMES: &[(&str, u64)] = &[("s", 1), ("m", 60), ("h", 3_600), ("d", 86_400), ("w", 604_800)];

fn parse_rotation(value: &Value, _: &CompileCtx) -> Result<Option<Rotation>, Reject> {
    let form = "write `( \"size\" => \"100M\", \"age\" => \"1d\", \"keep\" => 7 )`";
    let pairs = value.as_pairs();
    let pairs = pairs.ok_or_else(|| Reject::new("must be an array of rules").help(form))?;
    if pairs.is_empty() {
        return Ok(None);
    }
    let mut rotation = Rotation { kept_files: ROTATED_FILES, ..Rotation::default() };
    for (name, rule) in pairs {
        let at = |reject: Reject| reject.at(rule.span);
        match name {
            "size" => rotation.bytes_max = Some(parse_amount(&rule.value, SIZES).map_err(at)?),
            "age" => rotation.age_max_s = Some(parse_amount(&rule.value, TIMES).map_err(at)?),
            "keep" => {
                let kept = parse_int(&rule.value, &(0..=KEPT_FILES_MAX.into())).map_err(at)?;
                rotation.kept_files = u32::try_from(kept).unwrap_or(KEPT_FILES_MAX);
            }
            other => {
                let reject = Reject::new(format!("\"{other}\" is no rule of a rotation"));
                return Err(at(reject.did_you_mean(other, ["size", "age", "keep"])));
            }
        }
    }
    if rotation.bytes_max.is_none() && rotation.age_max_s.is_none() {
        return Err(Reject::new("has neither \"size\" nor \"age\"").help(form));
    }
    Ok(Some(rotation))
}

/// Parses a positive number with one of these units, or without a unit.
fn parse_amount(value: &Value, units: &[(&str, u64)]) -> Result<u64, Reject> {
    let text = parse_string(value)?;
    let unit = units.iter().find_map(|(unit, factor)| Some((text.strip_suffix(*unit)?, *factor)));
    let (digits, factor) = unit.unwrap_or((&*text, 1));
    let number = digits.parse::<u64>().ok().filter(|number| *number > 0);
    number.and_then(|number| number.checked_mul(factor)).ok_or_else(|| {
        let units: Vec<_> = units.iter().map(|(unit, _)| *unit).collect();
        Reject::new(format!("\"{text}\" is no amount"))
            .help(format!("write a number and a unit: {}", units.join(", ")))
    })
}
