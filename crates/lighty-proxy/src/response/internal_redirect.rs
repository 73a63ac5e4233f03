//! Internal redirects: a backend's response that names a file, another URL or another backend to
//! serve instead.

use lighty_core::exchange::request_state::Rewriting;
use lighty_core::pipeline::sendfile::{self, carry};
use lighty_core::{Exchange, Extension, Fault, FaultReport, RequestBody, Step, extension_slot};
use lighty_http::{Fields, Known, Method, host};

use crate::route::rules::ResponseRules;
use crate::session::BackendResponse;

/// An internal redirect.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum InternalRedirect {
    /// A file or parts of files: `X-Sendfile` and its like.
    File(sendfile::RequestedFile),
    /// A local URL; its response gets fields of this one (`X-Accel-Redirect`).
    Accelerate { target: Vec<u8> },
    /// The same request, rewritten: `X-Rewrite-URI`, `-Host`, `-Backend`.
    Rewrite(Rewrite),
}

/// The rewritten parts of a request.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Rewrite {
    pub target: Option<Vec<u8>>,
    pub host: Option<Vec<u8>>,
    pub backend: Option<Vec<u8>>,
}

const REWRITE_URI: &[u8] = b"X-Rewrite-URI";
const REWRITE_HOST: &[u8] = b"X-Rewrite-Host";
const REWRITE_BACKEND: &[u8] = b"X-Rewrite-Backend";

/// Returns the redirect that a response requests, as far as the rules allow.
pub(crate) fn requested(
    response: &BackendResponse,
    rules: &ResponseRules,
) -> Option<InternalRedirect> {
    let fields = &response.fields;
    let sent = || rules.sendfile_roots.is_some().then(|| sendfile_redirect(fields)).flatten();
    let rewritten = || rules.allow_x_rewrite.then(|| rewrite_redirect(fields)).flatten();
    sent().or_else(rewritten)
}

fn sendfile_redirect(fields: &Fields) -> Option<InternalRedirect> {
    if let Some(target) = fields.get(Known::XAccelRedirect) {
        return Some(InternalRedirect::Accelerate { target: target.to_vec() });
    }
    sendfile::requested_file(fields).map(InternalRedirect::File)
}

fn rewrite_redirect(fields: &Fields) -> Option<InternalRedirect> {
    let get = |name| fields.get_named(name).map(<[u8]>::to_vec);
    let rewrite = Rewrite {
        target: get(REWRITE_URI),
        host: get(REWRITE_HOST),
        backend: get(REWRITE_BACKEND),
    };
    (rewrite != Rewrite::default()).then_some(InternalRedirect::Rewrite(rewrite))
}

impl InternalRedirect {
    /// Performs the redirect. The exchange's response holds the backend's head, which is replaced.
    ///
    /// # Errors
    /// The redirect is not allowed, or fails.
    pub(crate) fn obey(
        self,
        ex: &mut Exchange,
        rules: &ResponseRules,
    ) -> Result<Step<'static>, FaultReport> {
        match self {
            InternalRedirect::File(named) => {
                let roots = rules.sendfile_roots.as_deref().unwrap_or_default();
                sendfile::send(ex, roots, &named)
            }
            InternalRedirect::Accelerate { target } => {
                carry(ex, |known, _| known.is_some_and(|name| ACCELERATED.contains(&name)));
                go_to(ex, &target)
            }
            InternalRedirect::Rewrite(rewrite) => rewrite.begin(ex),
        }
    }
}

/// Fields that are kept on an accelerated response, like in nginx.
const ACCELERATED: [Known; 5] = [
    Known::ContentType,
    Known::ContentDisposition,
    Known::SetCookie,
    Known::CacheControl,
    Known::Expires,
];

/// Restarts the request with another URL; its body was for the backend.
fn go_to(ex: &mut Exchange, target: &[u8]) -> Result<Step<'static>, FaultReport> {
    let refused = || {
        let text = format!("X-Accel-Redirect: {}", target.escape_ascii());
        FaultReport::new(Fault::BackendMalformed, text)
    };
    if target.first() != Some(&b'/') || target.starts_with(b"//") {
        return Err(refused());
    }
    ex.set_target(target).map_err(|_| refused())?;
    // Another URL than that which was rewritten, so the rules apply to it.
    ex.state.rewriting = Rewriting::default();
    ex.body = RequestBody::default();
    if !ex.request.is_head() {
        ex.request.method = Some(Method::Get);
    }
    Ok(Step::Restart)
}

/// The backend for the next attempt, named by a response to this request; empty: none.
#[derive(Default)]
pub(crate) struct WantedBackend(pub(crate) Vec<u8>);

impl Extension for WantedBackend {
    extension_slot!();
}

impl Rewrite {
    fn begin(self, ex: &mut Exchange) -> Result<Step<'static>, FaultReport> {
        let refused = |name: &[u8], value: &[u8]| {
            let text = format!("{}: {}", name.escape_ascii(), value.escape_ascii());
            FaultReport::new(Fault::BackendMalformed, text)
        };
        let (scheme, opts) = (ex.request.scheme, &ex.settings.server.parse);
        let authority = self.host.as_ref().map(|host| {
            let authority = host::normalized_authority(host, scheme, opts);
            authority.map_err(|_| refused(REWRITE_HOST, host))
        });
        let authority = authority.transpose()?;
        if let Some(target) = &self.target {
            let is_path = target.first() == Some(&b'/');
            if !is_path || ex.set_target(target).is_err() {
                return Err(refused(REWRITE_URI, target));
            }
        }
        if let Some(authority) = authority {
            ex.request.fields.set(Known::Host, &authority);
            ex.request.authority = authority;
        }
        ex.ext_mut::<WantedBackend>().0 = self.backend.unwrap_or_default();
        Ok(Step::Restart)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use lighty_core::module::FileFate;

    use super::*;

    fn response(fields: &[(&[u8], &[u8])]) -> BackendResponse {
        let mut response = BackendResponse::default();
        fields.iter().for_each(|(name, value)| response.fields.push(name, value));
        response
    }

    #[test]
    fn nothing_is_listened_to_unless_it_is_allowed() {
        let asks = response(&[
            (b"X-Sendfile", b"/a"),
            (b"X-Accel-Redirect", b"/b"),
            (b"x-rewrite-uri", b"/c"),
        ]);
        assert_eq!(requested(&asks, &ResponseRules::default()), None);
        let rewrites = ResponseRules { allow_x_rewrite: true, ..ResponseRules::default() };
        let rewrite = Rewrite { target: Some(b"/c".to_vec()), ..Rewrite::default() };
        assert_eq!(requested(&asks, &rewrites), Some(InternalRedirect::Rewrite(rewrite)));
    }

    #[test]
    fn every_spelling_of_a_file_is_read() {
        let rules =
            ResponseRules { sendfile_roots: Some(Arc::from([])), ..ResponseRules::default() };
        let file = |fate| {
            Some(InternalRedirect::File(sendfile::RequestedFile::Whole {
                path: b"/a".to_vec(),
                fate,
            }))
        };
        for (name, fate) in [
            ("X-Sendfile", FileFate::Stays),
            ("x-lighttpd-send-file", FileFate::Stays),
            ("X-LIGHTTPD-Send-Tempfile", FileFate::Removed),
        ] {
            let asks = response(&[(name.as_bytes(), b"/a")]);
            assert_eq!(requested(&asks, &rules), file(fate), "{name}");
        }
        let target = b"/a".to_vec();
        let asks = response(&[(b"X-Accel-Redirect", b"/a")]);
        assert_eq!(requested(&asks, &rules), Some(InternalRedirect::Accelerate { target }));
    }
}
