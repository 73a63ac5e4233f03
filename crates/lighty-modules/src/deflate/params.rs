//! Compression effort: `deflate.compression-level`, `deflate.window-size`, `deflate.params`.

use lighty_config::{CompileCtx, Key, Reject, Spanned, Value, parse_int_clamped};

use super::coding::Coding;

/// Parameters of every encoder.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct EncoderParams {
    pub(super) zlib_level: u32,
    /// Base-2 logarithm of the window in bytes, like the other windows.
    pub(super) zlib_window: u8,
    pub(super) brotli_quality: u32,
    pub(super) brotli_window: u32,
    /// 0 generic, 1 text, 2 font.
    pub(super) brotli_mode: u32,
    pub(super) zstd_level: i32,
    pub(super) zstd_window: u32,
    /// 0: the default of the level.
    pub(super) zstd_strategy: u32,
    /// In 100 kB.
    pub(super) bzip2_block: u32,
    pub(super) bzip2_work: u32,
}

impl Default for EncoderParams {
    fn default() -> Self {
        Self {
            zlib_level: 6,
            zlib_window: 15,
            brotli_quality: 5,
            brotli_window: 19,
            brotli_mode: 0,
            zstd_level: 3,
            zstd_window: 20,
            zstd_strategy: 0,
            bzip2_block: 9,
            bzip2_work: 0,
        }
    }
}

/// Maximum bytes compressed on the event loop at an ordinary level: a tenth of a millisecond.
/// Longer or harder work goes to a thread.
const INLINE_BYTES_MAX: usize = 8 * 1024;

impl EncoderParams {
    /// Sets the level of all encoders, as in lighttpd.
    pub(super) fn set_level(&mut self, level: u32) {
        self.zlib_level = level;
        self.brotli_quality = level;
        self.zstd_level = level as i32;
        self.bzip2_block = level;
    }

    /// Identifies a coding with its parameters.
    pub(super) fn form(&self, coding: Coding) -> Vec<u8> {
        let numbers = match coding {
            Coding::Gzip | Coding::Deflate => [self.zlib_level, self.zlib_window.into(), 0],
            Coding::Brotli => [self.brotli_quality, self.brotli_window, self.brotli_mode],
            Coding::Zstd => [self.zstd_level.cast_unsigned(), self.zstd_window, self.zstd_strategy],
            Coding::Bzip2 => [self.bzip2_block, self.bzip2_work, 0],
        };
        let mut form = coding.name().as_bytes().to_vec();
        numbers.iter().for_each(|number| form.extend_from_slice(&number.to_be_bytes()));
        form
    }

    /// Maximum bytes compressed without leaving the event loop.
    pub(super) fn inline_bytes_max(&self, coding: Coding) -> usize {
        match coding {
            Coding::Gzip | Coding::Deflate if self.zlib_level <= 6 => INLINE_BYTES_MAX,
            Coding::Zstd if self.zstd_level <= 6 => INLINE_BYTES_MAX,
            Coding::Brotli if self.brotli_quality <= 5 => INLINE_BYTES_MAX / 2,
            _ => 0,
        }
    }

    /// Returns Brotli's window for a body. A window of the body's length is enough and faster to
    /// clear.
    pub(super) fn brotli_window_for(&self, length: Option<u64>) -> u32 {
        /// Smaller windows make the encoder use a slower search.
        const LEAST: u32 = 17;
        let enough = length.map_or(u32::MAX, |length| u64::BITS - length.leading_zeros());
        self.brotli_window.min(enough.max(LEAST))
    }
}

/// A parameter of `deflate.params`: name, minimum, maximum and setter.
type Parameter = (&'static str, i64, i64, fn(&mut EncoderParams, i64));

/// `deflate.params` of lighttpd 1.4. A browser reads windows of zstd up to 8 MB (RFC 9659).
const PARAMETERS: [Parameter; 12] = [
    ("BROTLI_PARAM_MODE", 0, 2, |p, n| p.brotli_mode = n as u32),
    ("BROTLI_PARAM_QUALITY", 0, 11, |p, n| p.brotli_quality = n as u32),
    ("BROTLI_PARAM_LGWIN", 10, 24, |p, n| p.brotli_window = n as u32),
    ("ZSTD_c_compressionLevel", -7, 22, |p, n| p.zstd_level = n as i32),
    ("ZSTD_c_strategy", 0, 9, |p, n| p.zstd_strategy = n as u32),
    ("ZSTD_c_windowLog", 10, 23, |p, n| p.zstd_window = n as u32),
    ("gzip.level", 1, 9, |p, n| p.zlib_level = n as u32),
    ("gzip.windowBits", 9, 15, |p, n| p.zlib_window = n as u8),
    ("gzip.memLevel", 1, 9, |_, _| ()),
    ("gzip.strategy", 0, 4, |_, _| ()),
    ("bzip2.blockSize100k", 1, 9, |p, n| p.bzip2_block = n as u32),
    ("bzip2.workFactor", 0, 250, |p, n| p.bzip2_work = n as u32),
];

/// The setter and the value of an element of `deflate.params`.
pub(super) type ParamChange = (fn(&mut EncoderParams, i64), i64);

/// Reads `deflate.params`.
pub(super) fn parse(value: &Value, ctx: &CompileCtx) -> Result<Vec<ParamChange>, Reject> {
    let form = "write `( \"BROTLI_PARAM_QUALITY\" => 5 )`";
    let Some(items) = value.as_list() else {
        return Err(Reject::new("must be an array of keys and values").help(form));
    };
    let mut changes = Vec::with_capacity(items.len());
    for (key, item) in items {
        let Some(key) = key else {
            return Err(Reject::new("has an element without a key").help(form).at(item.span));
        };
        changes.extend(ctx.or_skip(change(key, item, ctx)));
    }
    Ok(changes)
}

fn change(key: &Key, item: &Spanned<Value>, ctx: &CompileCtx) -> Result<ParamChange, Reject> {
    let Some((name, min, max, set)) = PARAMETERS.iter().find(|(name, ..)| **name == **key) else {
        let names = PARAMETERS.iter().map(|(name, ..)| *name);
        let unknown = Reject::new(format!("has no parameter {:?}", key.text));
        return Err(unknown.did_you_mean(&key.text, names).at(key.span));
    };
    let text = item.value.as_str().and_then(|text| text.parse().ok());
    let number = item.value.as_int().or(text).or(mode(name, item.value.as_str()));
    let named = |reject: Reject| Reject::new(format!("{name} {}", reject.message)).at(item.span);
    let number = number.ok_or_else(|| {
        Reject::new(format!("{name} must be a number from {min} to {max}")).at(item.span)
    })?;
    let warn = |warning| ctx.warn(named(warning));
    Ok((*set, parse_int_clamped(&Value::Int(number), &(*min..=*max), warn).map_err(named)?))
}

/// The modes of brotli have names.
fn mode(key: &str, name: Option<&str>) -> Option<i64> {
    match name? {
        "generic" if key == "BROTLI_PARAM_MODE" => Some(0),
        "text" if key == "BROTLI_PARAM_MODE" => Some(1),
        "font" if key == "BROTLI_PARAM_MODE" => Some(2),
        _ => None,
    }
}
