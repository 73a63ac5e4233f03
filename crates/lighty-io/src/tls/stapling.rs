//! Stapled OCSP responses (RFC 6960, RFC 6066 section 8): what an authority says of a certificate,
//! sent along with it. They are not verified here, since clients do it; only what no client could
//! use is left out.

use super::certificate::{Der, GENERALIZED_TIME, INTEGER, SEQUENCE, time};

const ENUMERATED: u8 = 0x0a;
const OCTET_STRING: u8 = 0x04;
/// A field of its context, with number 0 or 1, that holds others.
const FIELD_0: u8 = 0xa0;
const GOOD: u8 = 0x80;

/// An OCSP response, as far as it says whether to send it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Staple {
    /// As the authority has made it, in DER.
    pub(super) der: Vec<u8>,
    /// The certificate's serial number.
    serial: Vec<u8>,
    /// When it is valid, in seconds since 1970.
    valid: std::ops::Range<i64>,
}

impl Staple {
    /// Reads a response about one certificate, in DER.
    ///
    /// # Errors
    /// In words: it is none, or it says something else than that the certificate is good.
    pub(super) fn read(der: &[u8]) -> Result<Self, &'static str> {
        let body = successful(der).ok_or("it is no OCSP response in DER")??;
        let (serial, status, valid) = single(body).ok_or("its OCSP response is broken")?;
        match status {
            GOOD => Ok(Self { der: der.to_vec(), serial: serial.to_vec(), valid }),
            _ => Err("the certificate is revoked or unknown to its authority"),
        }
    }

    /// Whether it is about the certificate with this serial number.
    pub(super) fn is_about(&self, serial: &[u8]) -> bool {
        self.serial == serial
    }

    /// Whether clients take it now.
    pub(super) fn is_valid(&self, now_s: i64) -> bool {
        self.valid.contains(&now_s)
    }

    /// When the next one is due, in seconds since 1970.
    pub(super) fn ends_s(&self) -> i64 {
        self.valid.end
    }
}

/// What a responder has signed, unless it reports an error; `None` for what is no response.
fn successful(der: &[u8]) -> Option<Result<&[u8], &'static str>> {
    let (SEQUENCE, response) = Der(der).next()? else { return None };
    let mut response = Der(response);
    let (ENUMERATED, &[status]) = response.next()? else { return None };
    if status != 0 {
        return Some(Err("the responder reports an error"));
    }
    let (FIELD_0, bytes) = response.next()? else { return None };
    let (SEQUENCE, bytes) = Der(bytes).next()? else { return None };
    let mut bytes = Der(bytes);
    let _kind = bytes.next()?;
    let (OCTET_STRING, basic) = bytes.next()? else { return None };
    Some(Ok(basic))
}

/// Serial number, status and validity in the first of a response's answers.
fn single(basic: &[u8]) -> Option<(&[u8], u8, std::ops::Range<i64>)> {
    let (SEQUENCE, basic) = Der(basic).next()? else { return None };
    let (SEQUENCE, data) = Der(basic).next()? else { return None };
    let mut data = Der(data);
    // The version and the responder's name, which are fields, come before the time.
    let mut next = data.next()?;
    while next.0 != GENERALIZED_TIME {
        next = data.next()?;
    }
    let (SEQUENCE, answers) = data.next()? else { return None };
    let (SEQUENCE, answer) = Der(answers).next()? else { return None };
    let mut answer = Der(answer);
    let (SEQUENCE, id) = answer.next()? else { return None };
    let serial = Der(id).by_ref().filter(|(tag, _)| *tag == INTEGER).last()?.1;
    let (status, _) = answer.next()?;
    let from_s = time(answer.next()?)?;
    let until_s = match answer.next() {
        Some((FIELD_0, next)) => time(Der(next).next()?)?,
        // Newer information is always to be had, so what is in a file is none.
        _ => return None,
    };
    Some((serial, status, from_s..until_s))
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    fn value(tag: u8, content: &[u8]) -> Vec<u8> {
        let length = u16::try_from(content.len()).expect("short").to_be_bytes();
        [&[tag, 0x82], &length[..], content].concat()
    }

    /// A response about a serial number, valid from one time of the form `20260101000000Z` to
    /// another.
    pub(in crate::tls) fn response(serial: &[u8], status: u8, from: &str, until: &str) -> Vec<u8> {
        let time = |text: &str| value(GENERALIZED_TIME, text.as_bytes());
        let id = [value(SEQUENCE, &[]), value(4, b"n"), value(4, b"k"), value(INTEGER, serial)];
        let answer = [
            value(SEQUENCE, &id.concat()),
            value(status, &[]),
            time(from),
            value(FIELD_0, &time(until)),
        ];
        let answers = value(SEQUENCE, &value(SEQUENCE, &answer.concat()));
        let data = [value(0xa2, &value(4, b"responder")), time(from), answers].concat();
        let basic = value(SEQUENCE, &value(SEQUENCE, &data));
        let bytes = [value(6, &[0x2b]), value(OCTET_STRING, &basic)].concat();
        let bytes = value(FIELD_0, &value(SEQUENCE, &bytes));
        value(SEQUENCE, &[value(ENUMERATED, &[0]), bytes].concat())
    }

    #[test]
    fn a_response_says_what_it_is_about_and_until_when() {
        let der = response(&[1, 2], GOOD, "20260101000000Z", "20260108000000Z");
        let staple = Staple::read(&der).expect("a response");
        assert_eq!(staple.der, der);
        assert!(staple.is_about(&[1, 2]) && !staple.is_about(&[1]));
        let from_s = 1_767_225_600;
        assert_eq!(staple.ends_s(), from_s + 7 * 86_400);
        let valid = [-1, 0, 7 * 86_400 - 1, 7 * 86_400].map(|s| staple.is_valid(from_s + s));
        assert_eq!(valid, [false, true, true, false]);
    }

    #[test]
    fn what_no_client_could_use_is_refused() {
        let revoked = response(&[1], 0xa1, "20260101000000Z", "20260108000000Z");
        assert!(Staple::read(&revoked).is_err_and(|why| why.contains("revoked")));
        let try_later = value(SEQUENCE, &value(ENUMERATED, &[3]));
        assert!(Staple::read(&try_later).is_err_and(|why| why.contains("reports an error")));
        let der = response(&[1], GOOD, "20260101000000Z", "20260108000000Z");
        for end in 0..der.len() {
            assert!(Staple::read(&der[..end]).is_err(), "{end}");
        }
        for at in 0..der.len() {
            let mut changed = der.clone();
            changed[at] ^= 0xff;
            let _ = Staple::read(&changed);
        }
    }
}
