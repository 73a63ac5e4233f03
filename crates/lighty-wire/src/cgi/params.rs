//! The variables that describe a request to a program: RFC 3875 section 4.1, and de facto standards
//! (`REQUEST_URI`, `SCRIPT_FILENAME`, `REDIRECT_STATUS`, ...).
//!
//! FastCGI, SCGI and uwsgi send the same variables in the same order, in different encodings.
//!
//! Header fields become `HTTP_` variables, with `_` in place of all characters except letters and
//! digits. Distinct names can thus collide, so a client could pass a program a field that the
//! server never checked or that it has removed. Therefore a name with other characters than
//! letters, digits and `-` does not become a variable ([`Params::colliding`]). If the operator
//! enables such names ([`Params::odd_names`]), one becomes a variable only if it collides with no
//! other field, neither a received one nor one that the server interprets. `Proxy` never does:
//! programs would mistake it for their own setting `HTTP_PROXY`.

use alloc::vec::Vec;

use lighty_http::variable_name::{self, is_alias};
use lighty_http::{Fields, Known, Version, decimal};

/// Fits the longest variable of an ordinary request.
const SCRATCH_BYTES: usize = 256;

/// Task of the program.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Purpose {
    /// To respond.
    #[default]
    Respond,
    /// To allow or deny the request. FastCGI 1.0 section 6.3: an authorizer does not get the
    /// variables of body and script (`CONTENT_LENGTH`, `PATH_INFO`, `PATH_TRANSLATED`,
    /// `SCRIPT_NAME`).
    Authorize,
}

/// Data of a request.
#[derive(Clone, Copy, Debug)]
pub struct Params<'a> {
    /// Task of the program.
    pub purpose: Purpose,
    /// `SERVER_SOFTWARE`.
    pub server_software: &'a [u8],
    /// `SERVER_NAME`: the configured name of the server, else the requested host without its port.
    pub server_name: &'a [u8],
    /// `SERVER_PORT`.
    pub server_port: u16,
    /// `SERVER_ADDR`: the address that the client connected to.
    pub server_addr: &'a [u8],
    /// `SERVER_PROTOCOL`.
    pub protocol: Version,
    /// `REMOTE_ADDR`.
    pub remote_addr: &'a [u8],
    /// `REMOTE_PORT`.
    pub remote_port: u16,
    /// `AUTH_TYPE`; only set for an authenticated request.
    pub auth_type: Option<&'a [u8]>,
    /// `REMOTE_USER`.
    pub remote_user: Option<&'a [u8]>,
    /// `REQUEST_METHOD`.
    pub method: &'a [u8],
    /// `REQUEST_URI`: the target as the client sent it.
    pub request_uri: &'a [u8],
    /// `REDIRECT_URI`: the target that the response is made for, if it differs.
    pub redirect_uri: Option<&'a [u8]>,
    /// `QUERY_STRING`.
    pub query: &'a [u8],
    /// `CONTENT_LENGTH`; left out for a body of unknown length.
    pub content_length: Option<u64>,
    /// `SCRIPT_NAME`: the part of the path that names the program.
    pub script_name: &'a [u8],
    /// `PATH_INFO`: the part of the path after the program's; left out if empty.
    pub path_info: &'a [u8],
    /// `SCRIPT_FILENAME`; left out if empty.
    pub script_filename: &'a [u8],
    /// `DOCUMENT_ROOT`; left out if empty.
    pub document_root: &'a [u8],
    /// True if the client's connection is encrypted: `HTTPS` and `REQUEST_SCHEME`.
    pub https: bool,
    /// `REDIRECT_STATUS`: 200, or the status of the error that the program handles.
    pub redirect_status: u16,
    /// Header fields, which become `HTTP_` variables; `Content-Type` becomes `CONTENT_TYPE`.
    pub fields: &'a Fields,
    /// Names with other characters than letters, digits and `-` become variables, too, if they are
    /// unambiguous.
    pub odd_names: bool,
    /// Additional variables. They come last, with names converted like those of variables (`my-var`
    /// is `MY_VAR`), and replace variables of the same names, except the ones about the body's
    /// length.
    pub extra: &'a [(&'a [u8], &'a [u8])],
}

impl<'a> Params<'a> {
    /// Empty data of a request with these fields.
    #[must_use]
    pub const fn new(fields: &'a Fields) -> Self {
        Self {
            purpose: Purpose::Respond,
            server_software: b"",
            server_name: b"",
            server_port: 0,
            server_addr: b"",
            protocol: Version::Http11,
            remote_addr: b"",
            remote_port: 0,
            auth_type: None,
            remote_user: None,
            method: b"",
            request_uri: b"",
            redirect_uri: None,
            query: b"",
            content_length: None,
            script_name: b"",
            path_info: b"",
            script_filename: b"",
            document_root: b"",
            https: false,
            redirect_status: 200,
            fields,
            odd_names: false,
            extra: &[],
        }
    }

    /// Calls `visit` with each name and value; each name occurs once. Returns the number of fields
    /// left out because their names collide, see [`Params::colliding`].
    pub fn for_each(&self, visit: impl FnMut(&[u8], &[u8])) -> usize {
        let mut visitor = Visitor { extra: self.extra, visit };
        let mut scratch = Vec::with_capacity(SCRATCH_BYTES);
        self.visit_connection(&mut visitor, &mut scratch);
        self.visit_request(&mut visitor, &mut scratch);
        self.visit_script(&mut visitor, &mut scratch);
        let colliding = self.visit_fields(&mut visitor, &mut scratch);
        visitor.visit_extra(&mut scratch);
        colliding
    }

    /// Names of fields that do not become variables, because another name maps to the same variable
    /// or could.
    pub fn colliding(&self) -> impl Iterator<Item = &'a [u8]> + '_ {
        let names = self.fields.iter_known().map(|(known, name, _)| (known, name));
        names.filter(|(known, name)| self.collides(*known, name)).map(|(_, name)| name)
    }

    fn visit_connection<F: FnMut(&[u8], &[u8])>(
        &self,
        visitor: &mut Visitor<'_, F>,
        scratch: &mut Vec<u8>,
    ) {
        visitor.own(b"SERVER_SOFTWARE", self.server_software);
        visitor.own(b"SERVER_NAME", self.server_name);
        visitor.own(b"SERVER_PORT", digits(u64::from(self.server_port), scratch));
        visitor.own(b"SERVER_ADDR", self.server_addr);
        visitor.own(b"SERVER_PROTOCOL", self.protocol.as_str().as_bytes());
        visitor.own(b"GATEWAY_INTERFACE", b"CGI/1.1");
        visitor.own(b"REMOTE_ADDR", self.remote_addr);
        visitor.own(b"REMOTE_PORT", digits(u64::from(self.remote_port), scratch));
        visitor.own_if(b"AUTH_TYPE", self.auth_type);
        visitor.own_if(b"REMOTE_USER", self.remote_user);
    }

    fn visit_request<F: FnMut(&[u8], &[u8])>(
        &self,
        visitor: &mut Visitor<'_, F>,
        scratch: &mut Vec<u8>,
    ) {
        visitor.own(b"REQUEST_METHOD", self.method);
        visitor.own(b"REQUEST_URI", self.request_uri);
        visitor.own_if(b"REDIRECT_URI", self.redirect_uri);
        visitor.own(b"QUERY_STRING", self.query);
        if let (Purpose::Respond, Some(len)) = (self.purpose, self.content_length) {
            (visitor.visit)(b"CONTENT_LENGTH", digits(len, scratch));
        }
        visitor.own_if(b"CONTENT_TYPE", self.fields.get(Known::ContentType));
    }

    fn visit_script<F: FnMut(&[u8], &[u8])>(
        &self,
        visitor: &mut Visitor<'_, F>,
        scratch: &mut Vec<u8>,
    ) {
        let has_root = !self.document_root.is_empty();
        if self.purpose == Purpose::Respond {
            visitor.own(b"SCRIPT_NAME", self.script_name);
        }
        // RFC 3875 section 4.1.6: PATH_TRANSLATED is not defined without PATH_INFO.
        if self.purpose == Purpose::Respond && !self.path_info.is_empty() {
            visitor.own(b"PATH_INFO", self.path_info);
            scratch.clear();
            let root = self.document_root.strip_suffix(b"/").unwrap_or(self.document_root);
            scratch.extend_from_slice(root);
            scratch.extend_from_slice(self.path_info);
            visitor.own_if(b"PATH_TRANSLATED", has_root.then_some(&**scratch));
        }
        let has_file = !self.script_filename.is_empty();
        visitor.own_if(b"SCRIPT_FILENAME", has_file.then_some(self.script_filename));
        visitor.own_if(b"DOCUMENT_ROOT", has_root.then_some(self.document_root));
        scratch.clear();
        decimal::push(self.redirect_status.into(), scratch);
        visitor.own(b"REDIRECT_STATUS", scratch);
        visitor.own(b"REQUEST_SCHEME", if self.https { b"https" } else { b"http" });
        visitor.own_if(b"HTTPS", self.https.then_some(b"on"));
    }

    fn visit_fields<F: FnMut(&[u8], &[u8])>(
        &self,
        visitor: &mut Visitor<'_, F>,
        scratch: &mut Vec<u8>,
    ) -> usize {
        let mut colliding = 0;
        for (index, (known, name, value)) in self.fields.iter_known().enumerate() {
            if known.is_some_and(is_withheld) || self.came_before(name, index) {
                continue;
            }
            if self.collides(known, name) {
                colliding += 1;
                continue;
            }
            let name_len = push_variable_name(name, scratch);
            let value = self.all_values(index, name, value, scratch);
            let (name, joined) = scratch.split_at(name_len);
            visitor.own(name, value.unwrap_or(joined));
        }
        colliding
    }

    fn collides(&self, known: Option<Known>, name: &[u8]) -> bool {
        let is_plain = |byte: &u8| byte.is_ascii_alphanumeric() || *byte == b'-';
        known.is_none()
            && !name.iter().all(is_plain)
            && (!self.odd_names || self.is_ambiguous(name))
    }

    #[cold]
    fn is_ambiguous(&self, name: &[u8]) -> bool {
        let mut others = self.fields.iter().map(|(other, _)| other);
        means_something(name)
            || others.any(|other| is_alias(name, other) && !name.eq_ignore_ascii_case(other))
    }

    /// True if a field of this name precedes the index: its variable already contains this value.
    fn came_before(&self, name: &[u8], index: usize) -> bool {
        self.fields.iter().take(index).any(|(other, _)| other.eq_ignore_ascii_case(name))
    }

    /// The value, if it is the only one of this name. Otherwise appends all values to `scratch`,
    /// joined as RFC 9110 section 5.3 and, for cookies, RFC 6265 section 5.4 allow.
    fn all_values(
        &self,
        index: usize,
        name: &[u8],
        first: &'a [u8],
        scratch: &mut Vec<u8>,
    ) -> Option<&'a [u8]> {
        let separator: &[u8] = if name.eq_ignore_ascii_case(b"cookie") { b"; " } else { b", " };
        let mut is_single = true;
        for (other, value) in self.fields.iter().skip(index + 1) {
            if !other.eq_ignore_ascii_case(name) {
                continue;
            }
            if is_single {
                scratch.extend_from_slice(first);
                is_single = false;
            }
            scratch.extend_from_slice(separator);
            scratch.extend_from_slice(value);
        }
        is_single.then_some(first)
    }
}

/// Leaves out variables that an extra one replaces.
struct Visitor<'a, F> {
    extra: &'a [(&'a [u8], &'a [u8])],
    visit: F,
}

impl<F: FnMut(&[u8], &[u8])> Visitor<'_, F> {
    fn own(&mut self, name: &[u8], value: &[u8]) {
        if !self.extra.iter().any(|(extra, _)| is_alias(extra, name)) {
            (self.visit)(name, value);
        }
    }

    fn own_if(&mut self, name: &[u8], value: Option<&[u8]>) {
        if let Some(value) = value {
            self.own(name, value);
        }
    }

    fn visit_extra(&mut self, scratch: &mut Vec<u8>) {
        for (index, (name, value)) in self.extra.iter().enumerate() {
            let is_last = !self.extra[index + 1..].iter().any(|(later, _)| is_alias(later, name));
            if is_last && !is_alias(name, b"CONTENT_LENGTH") && !name.is_empty() {
                scratch.clear();
                scratch.extend(name.iter().map(|byte| variable_name::byte(*byte)));
                (self.visit)(scratch, value);
            }
        }
    }
}

/// Fields with variables of their own, fields that the server has already applied, and `Proxy`,
/// which would be mistaken for a setting.
const fn is_withheld(known: Known) -> bool {
    matches!(known, Known::ContentLength | Known::ContentType)
        || matches!(known, Known::TransferEncoding | Known::Proxy)
}

/// True if a name maps to the same variable as a known field.
fn means_something(name: &[u8]) -> bool {
    Known::all().iter().any(|known| is_alias(name, known.as_str().as_bytes()))
}

fn push_variable_name(name: &[u8], scratch: &mut Vec<u8>) -> usize {
    scratch.clear();
    scratch.extend_from_slice(b"HTTP_");
    scratch.extend(name.iter().map(|byte| variable_name::byte(*byte)));
    scratch.len()
}

fn digits(number: u64, scratch: &mut Vec<u8>) -> &[u8] {
    scratch.clear();
    decimal::push(number, scratch);
    scratch
}

#[cfg(test)]
#[path = "params_tests.rs"]
mod tests;
