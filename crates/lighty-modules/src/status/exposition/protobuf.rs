//! Prometheus' protocol buffers: `io.prometheus.client.MetricFamily`, each behind its length.
//!
//! Field numbers come from its `metrics.proto`. Histograms have both fixed and native buckets;
//! collectors that support native histograms use the native ones.

use lighty_core::machine::histogram::Histogram;
use lighty_core::machine::metrics::exemplars::{Exemplar, Exemplars};

use super::family::{Family, MetricKind, Sample, Value};

/// Native histogram schema 3: eight buckets per doubling.
const SCHEMA: i64 = 3;

/// Upper bound of the zero bucket in seconds; no duration is that short.
const ZERO_THRESHOLD: f64 = 1e-9;

pub(super) fn write(families: &[Family]) -> Vec<u8> {
    let mut out = Vec::new();
    for family in families {
        let message = encode_family(family);
        push_varint(message.len() as u64, &mut out);
        out.extend_from_slice(&message);
    }
    out
}

fn encode_family(family: &Family) -> Vec<u8> {
    let mut out = Vec::new();
    let (suffix, kind) = match family.kind {
        MetricKind::Counter => ("_total", 0),
        MetricKind::Gauge => ("", 1),
        MetricKind::Histogram(_) => ("", 4),
    };
    push_bytes(1, format!("{}{suffix}", family.name).as_bytes(), &mut out);
    push_bytes(2, family.help.as_bytes(), &mut out);
    push_number(3, kind, &mut out);
    for sample in &family.samples {
        push_bytes(4, &encode_sample(sample, family.kind), &mut out);
    }
    out
}

fn encode_sample(sample: &Sample, kind: MetricKind) -> Vec<u8> {
    let mut out = Vec::new();
    for (name, value) in &sample.labels {
        let mut pair = Vec::new();
        push_bytes(1, name.as_bytes(), &mut pair);
        push_bytes(2, value.as_bytes(), &mut pair);
        push_bytes(1, &pair, &mut out);
    }
    match (&sample.value, kind) {
        (Value::Number(value), _) => {
            let mut number = Vec::new();
            push_double(1, *value, &mut number);
            push_bytes(if kind == MetricKind::Counter { 3 } else { 2 }, &number, &mut out);
        }
        (Value::Durations(durations, exemplars), MetricKind::Histogram(bounds_us)) => {
            push_bytes(7, &encode_durations(durations, exemplars.as_deref(), bounds_us), &mut out);
        }
        (Value::Durations(..), _) => {}
    }
    out
}

fn encode_exemplar(one: &Exemplar) -> Vec<u8> {
    let (mut label, mut when, mut out) = (Vec::new(), Vec::new(), Vec::new());
    push_bytes(1, b"trace_id", &mut label);
    push_bytes(2, format!("{:032x}", one.trace_id).as_bytes(), &mut label);
    push_number(1, one.unix_us / 1_000_000, &mut when);
    push_number(2, one.unix_us % 1_000_000 * 1000, &mut when);
    push_bytes(1, &label, &mut out);
    push_double(2, one.took_us as f64 / 1e6, &mut out);
    push_bytes(3, &when, &mut out);
    out
}

fn encode_durations(
    durations: &Histogram,
    exemplars: Option<&Exemplars>,
    bounds_us: &[u64],
) -> Vec<u8> {
    let mut out = Vec::new();
    push_number(1, durations.count(), &mut out);
    push_double(2, durations.sum_us() as f64 / 1e6, &mut out);
    let exemplar = |at| exemplars.and_then(|all: &Exemplars| all.of(at));
    let bounds = bounds_us.iter().map(|us| *us as f64 / 1e6);
    let all = exemplar(bounds_us.len()).map(|_| (f64::INFINITY, durations.count()));
    for (at, (bound, count)) in bounds.zip(durations.fixed()).chain(all).enumerate() {
        let mut bucket = Vec::new();
        push_number(1, count, &mut bucket);
        push_double(2, bound, &mut bucket);
        if let Some(one) = exemplar(at) {
            push_bytes(3, &encode_exemplar(one), &mut bucket);
        }
        push_bytes(3, &bucket, &mut out);
    }
    push_number(5, zigzag(SCHEMA), &mut out);
    push_double(6, ZERO_THRESHOLD, &mut out);
    push_number(7, 0, &mut out);
    let native: Vec<(i32, u64)> = durations.native().collect();
    if let Some((first, _)) = native.first() {
        let mut span = Vec::new();
        push_number(1, zigzag(i64::from(*first)), &mut span);
        push_number(2, native.len() as u64, &mut span);
        push_bytes(12, &span, &mut out);
    }
    let mut deltas = Vec::new();
    let mut before = 0;
    for (_, count) in &native {
        let count = i64::try_from(*count).unwrap_or(i64::MAX);
        push_varint(zigzag(count - before), &mut deltas);
        before = count;
    }
    push_bytes(13, &deltas, &mut out);
    out
}

fn push_varint(mut value: u64, out: &mut Vec<u8>) {
    while value >= 0x80 {
        out.push(value as u8 | 0x80);
        value >>= 7;
    }
    out.push(value as u8);
}

fn zigzag(value: i64) -> u64 {
    ((value << 1) ^ (value >> 63)) as u64
}

fn push_number(field: u64, value: u64, out: &mut Vec<u8>) {
    push_varint(field << 3, out);
    push_varint(value, out);
}

fn push_double(field: u64, value: f64, out: &mut Vec<u8>) {
    push_varint(field << 3 | 1, out);
    out.extend_from_slice(&value.to_le_bytes());
}

fn push_bytes(field: u64, bytes: &[u8], out: &mut Vec<u8>) {
    push_varint(field << 3 | 2, out);
    push_varint(bytes.len() as u64, out);
    out.extend_from_slice(bytes);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_have_as_many_bytes_as_they_need() {
        let of = |value| {
            let mut out = Vec::new();
            push_varint(value, &mut out);
            out
        };
        assert_eq!(of(0), [0]);
        assert_eq!(of(300), [0xAC, 0x02]);
        assert_eq!(of(u64::MAX).len(), 10);
        assert_eq!([0, -1, 1, -2, i64::MIN].map(zigzag), [0, 1, 2, 3, u64::MAX]);
    }

    #[test]
    fn an_example_is_the_bytes_of_the_protocol() {
        let one = Exemplar { trace_id: 10, took_us: 1_500_000, unix_us: 2_000_003 };
        let mut wanted = b"\x0a\x2c\x0a\x08trace_id\x12\x20".to_vec();
        wanted.extend_from_slice(b"0000000000000000000000000000000a\x11");
        wanted.extend_from_slice(&1.5_f64.to_le_bytes());
        wanted.extend_from_slice(b"\x1a\x05\x08\x02\x10\xb8\x17");
        assert_eq!(encode_exemplar(&one), wanted);
    }

    #[test]
    fn a_counter_is_the_bytes_of_the_protocol() {
        let family = Family::single("a", MetricKind::Counter, "h", 1.0);
        let mut wanted = vec![27];
        wanted.extend_from_slice(b"\x0a\x07a_total\x12\x01h\x18\x00\x22\x0b\x1a\x09\x09");
        wanted.extend_from_slice(&1.0_f64.to_le_bytes());
        assert_eq!(write(&[family]), wanted);
    }
}
