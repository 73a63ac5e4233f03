//! The directives and settings of `mod_deflate`.

use std::sync::Arc;

use lighty_config::{CompileCtx, Kind, NeedKind, Reject, Value, parse_string, parse_strings};
use lighty_core::settings::Directive;
use lighty_core::{Settings, module_settings};

use super::coding::Coding;
use super::params::{self, EncoderParams};

/// Settings of the module.
#[derive(Clone, Debug)]
pub(super) struct DeflateSettings {
    /// `deflate.enabled`, if it is set.
    pub(super) enabled: Option<bool>,
    /// Prefixes of media types.
    pub(super) types: lighty_config::Strings,
    pub(super) allowed: Arc<[Coding]>,
    pub(super) params: EncoderParams,
    /// 0: the complete output of a block.
    pub(super) out_bytes: usize,
    pub(super) block_bytes: usize,
    pub(super) min_bytes: u64,
    /// 0: no limit.
    pub(super) max_bytes: u64,
    pub(super) sync_flush: bool,
    pub(super) load_max: Option<f64>,
    pub(super) cache_dir: Option<Arc<str>>,
    pub(super) precompressed: bool,
    pub(super) memory_bytes_max: u64,
    pub(super) debug: bool,
}

impl Default for DeflateSettings {
    fn default() -> Self {
        Self {
            enabled: None,
            types: Arc::from([]),
            allowed: Arc::from(Coding::ALL),
            params: EncoderParams::default(),
            out_bytes: 0,
            block_bytes: 256 * 1024,
            min_bytes: 256,
            max_bytes: 128 << 20,
            sync_flush: false,
            load_max: None,
            cache_dir: None,
            precompressed: false,
            memory_bytes_max: 256 << 20,
            debug: false,
        }
    }
}
module_settings!(DeflateSettings);

impl DeflateSettings {
    /// True if anything is compressed: 1.4 requires types, 1.5 requires `deflate.enabled`.
    pub(super) fn compresses(&self) -> bool {
        self.enabled.unwrap_or(!self.types.is_empty())
    }

    /// True if every type is compressed: 1.5, enabled and without types.
    pub(super) fn takes_every_type(&self) -> bool {
        self.types.is_empty() && self.enabled == Some(true)
    }
}

fn own(settings: &mut Settings) -> &mut DeflateSettings {
    settings.module_mut::<DeflateSettings>()
}

/// Every directive of the module.
pub(super) fn rows() -> Vec<Directive> {
    let mut rows = selection();
    rows.extend(output());
    rows.extend(effort());
    rows.extend(caches());
    rows.into_iter().map(|row| row.module("mod_deflate")).collect()
}

/// Directives that select the responses to compress.
fn selection() -> Vec<Directive> {
    vec![
        Directive::bool("deflate.enabled", |s, on| own(s).enabled = Some(on))
            .default_prose("`enable` where `deflate.mimetypes` names types")
            .since("1.5")
            .doc(
                "Compresses responses for clients that accept it: files, listings, error pages and \
                 responses of backends. Responses with `Content-Encoding`, `Cache-Control: \
                 no-transform` or status 206 stay as they are. If `deflate.mimetypes` is not set, \
                 every type is compressed, as in lighttpd 1.5, even pictures and archives, which \
                 is seldom useful.",
            )
            .example("$HTTP[\"url\"] =~ \"^/raw/\" { deflate.enabled = \"disable\" }"),
        Directive::strings("deflate.mimetypes", |s, types| own(s).types = types)
            .default("()")
            .since("1.4")
            .alias("compress.filetype")
            .doc(
                "Beginnings of the media types that are compressed (`text/` and `text/*` mean \
                 the same). Empty: nothing is compressed, as in 1.4, unless `deflate.enabled` \
                 says `enable`.",
            )
            .example(
                "deflate.mimetypes = ( \"text/\", \"application/javascript\", \"image/svg+xml\" )",
            ),
        Directive::parsed("deflate.allowed-encodings", Kind::List, allowed, |s, list| {
            own(s).allowed = Arc::clone(list);
        })
        .default("( \"br\", \"zstd\", \"gzip\", \"deflate\", \"bzip2\" )")
        .since("1.4")
        .alias("deflate.allowed_encodings")
        .alias("compress.allowed-encodings")
        .doc(
            "Codings that may be used: `br`, `zstd`, `gzip`, `deflate`, `bzip2`. The coding with \
             the client's highest weight (`q`) is used; among equals the first in this list. \
             `deflate` is the zlib format (RFC 9110), not raw deflate as in lighttpd. `bzip2` is \
             not used for event streams: it cannot be read before a block is full.",
        )
        .example("deflate.allowed-encodings = ( \"br\", \"gzip\" )"),
        Directive::int("deflate.min-compress-size", 0..=i64::MAX, |s, n| {
            own(s).min_bytes = n as u64
        })
        .default("256")
        .since("1.5")
        .doc(
            "Minimum size in bytes for compression, for bodies of known length; smaller bodies \
                 are compressed only if the client refuses uncompressed ones (`identity;q=0`).",
        )
        .example("deflate.min-compress-size = 1024"),
        Directive::int("deflate.max-compress-size", 0..=1 << 40, |s, n| {
            own(s).max_bytes = (n as u64).saturating_mul(1024);
        })
        .default("131072")
        .since("1.4")
        .alias("compress.max-filesize")
        .doc("Maximum size in KB for compression, for bodies of known length. 0: no limit.")
        .example("deflate.max-compress-size = 65536"),
    ]
}

/// Directives for buffering, memory and logging.
fn output() -> Vec<Directive> {
    vec![
        Directive::bool("deflate.sync-flush", |s, on| own(s).sync_flush = on)
            .default("disable")
            .since("1.5")
            .doc(
                "Sends whatever a backend or script has produced at once, at the cost of some \
                 compression. `text/event-stream` is always sent so.",
            )
            .example("deflate.sync-flush = \"enable\""),
        Directive::int("deflate.work-block-size", 0..=2048, |s, n| {
            own(s).block_bytes = if n == 0 { 2 << 20 } else { (n as usize) << 10 };
        })
        .default("256")
        .since("1.5")
        .doc(
            "KB of a body that are compressed in one go, and held in memory while they are. \
             Bodies take turns after each block. The work is done on threads, as many as there \
             are cores, not on the event loops. 0: 2048. (lighttpd's default is 2048.)",
        )
        .example("deflate.work-block-size = 64"),
        Directive::int("deflate.output-buffer-size", 0..=64 << 20, |s, n| {
            own(s).out_bytes = n as usize
        })
        .default("0")
        .since("1.5")
        .doc(
            "Bytes that come out of one go at most; the rest waits until the client has taken \
                 them. 0: 65536.",
        )
        .example("deflate.output-buffer-size = 16384"),
        Directive::int("deflate.max-memory", 0..=1 << 30, |s, n| {
            own(s).memory_bytes_max = (n as u64).saturating_mul(1024);
        })
        .default("262144")
        .since("lighty")
        .doc(
            "KB that the encoders of one worker may hold together, windows and tables included: \
             half a MB for gzip and deflate, 7 for br, 4 for zstd, 8 for bzip2, and a block's \
             input and output for each, at the default parameters. A body with a known short \
             length takes less (100 KB with br: 4 MB), a high level more (br at 9: 39 MB, zstd at \
             12: 59). The limit is never more than a quarter of the worker's share of the control \
             group's memory limit. At the limit, responses are sent uncompressed. 0: only short \
             responses are compressed.",
        )
        .example("deflate.max-memory = 65536"),
        Directive::bool("deflate.debug", |s, on| own(s).debug = on)
            .default("disable")
            .since("1.5")
            .doc("Logs the decision for each response.")
            .example("deflate.debug = \"enable\""),
    ]
}

/// Directives for the effort of compression.
fn effort() -> Vec<Directive> {
    vec![
        Directive::int("deflate.compression-level", -1..=9, |s, n| {
            if n > 0 {
                own(s).params.set_level(n as u32);
            }
        })
        .default("-1")
        .since("1.5")
        .doc(
            "1 (fast) to 9 (small), for every coding. -1 or 0: 6 for gzip and deflate, 5 for br, \
             3 for zstd, 9 for bzip2.",
        )
        .example("deflate.compression-level = 4"),
        Directive::int("deflate.window-size", 1..=15, |s, n| {
            own(s).params.zlib_window = n.max(9) as u8
        })
        .default("15")
        .since("1.5")
        .doc("Base-2 logarithm of the window of gzip and deflate; below 9 it is 9.")
        .example("deflate.window-size = 12"),
        Directive::int("deflate.mem-level", 1..=9, |_, _| ())
            .default("9")
            .since("1.5")
            .doc(
                "Accepted for compatibility with lighttpd and ignored: the encoder uses the \
                  memory of level 8.",
            )
            .example("deflate.mem-level = 9"),
        Directive::parsed(
            "deflate.params",
            Kind::Map,
            params::parse,
            |s: &mut Settings, changes| {
                changes.iter().for_each(|(set, number)| set(&mut own(s).params, *number));
            },
        )
        .default("()")
        .since("1.4")
        .doc(
            "Parameters of single encoders; they add to those of enclosing blocks. \
             `BROTLI_PARAM_QUALITY` (0 to 11, default 5), `BROTLI_PARAM_LGWIN` (10 to 24, 19), \
             `BROTLI_PARAM_MODE` (`generic`, `text`, `font`), `ZSTD_c_compressionLevel` (-7 to \
             22, 3), `ZSTD_c_windowLog` (10 to 23, 20), `ZSTD_c_strategy` (0 to 9), `gzip.level`, \
             `gzip.windowBits`, `bzip2.blockSize100k`, `bzip2.workFactor`. `gzip.memLevel` and \
             `gzip.strategy` are accepted and do nothing.",
        )
        .example(
            "deflate.params = ( \"BROTLI_PARAM_QUALITY\" => 4, \"ZSTD_c_compressionLevel\" => 6 )",
        ),
        Directive::parsed("deflate.max-loadavg", Kind::String, load, |s: &mut Settings, load| {
            own(s).load_max = *load;
        })
        .default("")
        .since("1.4")
        .alias("compress.max-loadavg")
        .doc(
            "Load average (one minute) above which only cached and precompressed content is sent \
             compressed. Empty: no limit.",
        )
        .example("deflate.max-loadavg = \"3.50\""),
    ]
}

/// Directives for stored compressed files.
fn caches() -> Vec<Directive> {
    vec![
        Directive::parsed(
            "deflate.cache-dir",
            Kind::String,
            |v, _| directory(v),
            |s: &mut Settings, dir| {
                own(s).cache_dir = dir.clone();
            },
        )
        .needs(NeedKind::Written)
        .default("")
        .since("1.4")
        .alias("compress.cache-dir")
        .doc(
            "A directory, writable for the server (a relative path is one of its working \
             directory; it is made if it is missing), in which compressed files are kept, so that \
             each is compressed once: `PATH-CODING-ETAG` beneath it, with the file's physical \
             path, written beside and renamed when whole. A file that changes gets a new name; \
             nothing is removed here: let `find DIR -type f -atime +10 -delete` do it. Where it \
             cannot be written (no space), files are compressed and not kept. Only for files with \
             an `ETag`.",
        )
        .example("deflate.cache-dir = \"/var/cache/lighty/deflate\""),
        Directive::bool("deflate.precompressed", |s, on| own(s).precompressed = on)
            .default("disable")
            .since("lighty")
            .doc(
                "Looks for `FILE.br`, `FILE.zst`, `FILE.gz` and `FILE.bz2` beside a file, and \
                 sends the first that the client accepts and that is not older than the file. \
                 Disabled by default, because it looks up to four names that seldom exist, and \
                 because anybody who can write beside a file could replace its content. Size \
                 limits do not apply.",
            )
            .example("deflate.precompressed = \"enable\""),
    ]
}

/// The codings of a list; others are left out. An empty list allows all, as in lighttpd.
fn allowed(value: &Value, ctx: &CompileCtx) -> Result<Arc<[Coding]>, Reject> {
    let names = parse_strings(value)?;
    if names.is_empty() {
        return Ok(Arc::from(Coding::ALL));
    }
    let spans = value.as_list().unwrap_or_default();
    let coding = |(index, name): (usize, &Arc<str>)| {
        let found = Coding::from_name(name);
        let reject = match found {
            Some(coding) if coding.is_built() => return found,
            Some(_) => Reject::new(format!(
                "has {name:?}, for which this build has no encoder: only files that were \
                 compressed beforehand are sent in it"
            )),
            None => {
                let known = Coding::ALL.map(Coding::name);
                Reject::new(format!("has no coding {name:?}")).did_you_mean(name, known)
            }
        };
        ctx.warn(match spans.get(index) {
            Some((_, item)) => reject.at(item.span),
            None => reject,
        });
        found
    };
    Ok(names.iter().enumerate().filter_map(coding).collect())
}

fn load(value: &Value, ctx: &CompileCtx) -> Result<Option<f64>, Reject> {
    let text = match value.as_int() {
        Some(number) => number.to_string().into(),
        None => parse_string(value)?,
    };
    if text.is_empty() {
        return Ok(None);
    }
    let number = text.parse().ok().filter(|load: &f64| load.is_finite() && *load >= 0.0);
    let number = number.ok_or_else(|| Reject::new("must be a load average like \"3.50\""));
    Ok(ctx.or_skip(number))
}

fn directory(value: &Value) -> Result<Option<Arc<str>>, Reject> {
    let path = parse_string(value)?;
    Ok(Some(path).filter(|path| !path.is_empty()))
}
