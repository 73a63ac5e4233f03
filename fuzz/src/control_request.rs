//! Requests to the control socket: takes any bytes, and panics when a promise is broken. It stands
//! beside the parser, whose functions are not public.

use super::fault::ControlFault;
use super::message::{is_complete, parse};

/// Bytes of a request of which every beginning is parsed.
const PREFIXES_MAX: usize = 512;

/// A request is parsed as soon as it is complete, and bytes after it change nothing.
pub fn control_request(data: &[u8]) {
    let parsed = parse(data);
    assert_eq!(is_complete(data), !matches!(parsed, Err(ControlFault::Partial)));
    if let Ok(request) = &parsed {
        assert!(!request.path.contains('?') && request.body.len() <= data.len());
        request.parameters().for_each(|(name, _)| assert!(!name.contains('&')));
    }
    if data.len() > PREFIXES_MAX {
        return;
    }
    let whole = format!("{parsed:?}");
    let complete = (0..data.len()).map(|end| &data[..end]).filter(|part| is_complete(part));
    complete.for_each(|part| assert_eq!(format!("{:?}", parse(part)), whole));
}
