//! Stapled OCSP responses (RFC 6960, RFC 6066 section 8): an authority's statement about a
//! certificate, sent along with it. Clients verify them, so this does not; it only omits responses
//! that no client could use.

use super::certificate::{Der, GENERALIZED_TIME, INTEGER, SEQUENCE, time};

const ENUMERATED: u8 = 0x0a;
const OCTET_STRING: u8 = 0x04;
/// Tag of a context-specific, constructed field with number 0.
const FIELD_0: u8 = 0xa0;
const GOOD: u8 = 0x80;

/// An OCSP response, and the fields that decide whether to send it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Staple {
    /// The unmodified response, in DER.
    pub(super) der: Vec<u8>,
    /// The certificate's serial number.
    serial: Vec<u8>,
    /// Validity period, in seconds since 1970.
    valid: std::ops::Range<i64>,
}

/// Reason why an OCSP response cannot be stapled.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum StapleError {
    #[error("it is no OCSP response in DER")]
    NotDer,
    #[error("its OCSP response is broken")]
    Broken,
    #[error("the responder reports an error")]
    Responder,
    #[error("the certificate is revoked or unknown to its authority")]
    NotGood,
}

impl Staple {
    /// Parses a response about one certificate, in DER.
    ///
    /// # Errors
    /// It is not a response, or the certificate's status in it is not good.
    pub(super) fn read(der: &[u8]) -> Result<Self, StapleError> {
        let body = successful(der).ok_or(StapleError::NotDer)??;
        let (serial, status, valid) = single(body).ok_or(StapleError::Broken)?;
        match status {
            GOOD => Ok(Self { der: der.to_vec(), serial: serial.to_vec(), valid }),
            _ => Err(StapleError::NotGood),
        }
    }

    /// True if it is about the certificate with this serial number.
    pub(super) fn is_about(&self, serial: &[u8]) -> bool {
        self.serial == serial
    }

    /// True if clients accept it now.
    pub(super) fn is_valid(&self, now_s: i64) -> bool {
        self.valid.contains(&now_s)
    }

    /// Time when the next response is due, in seconds since 1970.
    pub(super) fn ends_s(&self) -> i64 {
        self.valid.end
    }
}

/// The signed part of a response, or the error that the responder reports; `None` if it is not a
/// response.
fn successful(der: &[u8]) -> Option<Result<&[u8], StapleError>> {
    let (SEQUENCE, response) = Der(der).next()? else { return None };
    let mut response = Der(response);
    let (ENUMERATED, &[status]) = response.next()? else { return None };
    if status != 0 {
        return Some(Err(StapleError::Responder));
    }
    let (FIELD_0, bytes) = response.next()? else { return None };
    let (SEQUENCE, bytes) = Der(bytes).next()? else { return None };
    let mut bytes = Der(bytes);
    let _kind = bytes.next()?;
    let (OCTET_STRING, basic) = bytes.next()? else { return None };
    Some(Ok(basic))
}

/// Serial number, status and validity of the first certificate in a response.
fn single(basic: &[u8]) -> Option<(&[u8], u8, std::ops::Range<i64>)> {
    let (SEQUENCE, basic) = Der(basic).next()? else { return None };
    let (SEQUENCE, data) = Der(basic).next()? else { return None };
    let mut data = Der(data);
    // The fields for version and responder's name precede the time.
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
        // Without a next update, newer responses are always available, so a stored one is outdated.
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

    /// A response about a serial number. The times of its validity have the form `20260101000000Z`.
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
    fn unusable_ocsp_responses_are_refused() {
        let revoked = response(&[1], 0xa1, "20260101000000Z", "20260108000000Z");
        assert!(Staple::read(&revoked).is_err_and(|why| why == StapleError::NotGood));
        let try_later = value(SEQUENCE, &value(ENUMERATED, &[3]));
        assert!(Staple::read(&try_later).is_err_and(|why| why == StapleError::Responder));
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
