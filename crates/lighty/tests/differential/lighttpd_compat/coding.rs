//! Content codings: bodies are compared after decoding.

use std::io::Read;

use lighty_testkit::response::Response;

/// Removes the content coding of a body. A body that fails to decode is replaced by an error text.
pub(crate) fn decoded(answer: &Response) -> Vec<u8> {
    let coding = answer.all("Content-Encoding").next().unwrap_or("");
    let coded = &answer.body[..];
    let mut plain = Vec::new();
    let done = match coding {
        "gzip" | "x-gzip" => flate2::read::GzDecoder::new(coded).read_to_end(&mut plain),
        "deflate" => flate2::read::ZlibDecoder::new(coded).read_to_end(&mut plain),
        "br" => brotli::Decompressor::new(coded, 4096).read_to_end(&mut plain),
        "zstd" => zstd::stream::copy_decode(coded, &mut plain).map(|()| 0),
        _ => return coded.to_vec(),
    };
    match done {
        Ok(_) => plain,
        Err(error) => format!("not {coding}: {error}").into_bytes(),
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use super::*;

    fn answer(coding: &str, body: &[u8]) -> Response {
        Response {
            minor: 1,
            status: 200,
            fields: vec![("Content-Encoding".to_owned(), coding.to_owned())],
            body: body.to_vec(),
            interim: Vec::new(),
            until_close: false,
            trailers: Vec::new(),
        }
    }

    #[test]
    fn codings_are_taken_away() {
        let mut gzip = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
        gzip.write_all(b"text").expect("memory has room");
        let gzip = gzip.finish().expect("memory has room");
        assert_eq!(decoded(&answer("gzip", &gzip)), b"text");
        assert_eq!(decoded(&answer("identity", b"text")), b"text");
        assert!(decoded(&answer("gzip", b"text")).starts_with(b"not gzip"));
    }
}
