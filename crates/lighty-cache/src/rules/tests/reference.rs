//! A second, plain reading of RFC 9111, for responses with well-formed fields.

use super::*;

/// A response as the reference sees it: no text is parsed.
#[derive(Clone, Debug, Default)]
pub(super) struct PlainResponse {
    pub(super) code: u16,
    pub(super) max_age: Option<u32>,
    pub(super) s_maxage: Option<u32>,
    pub(super) expires: Option<i64>,
    pub(super) date: Option<i64>,
    pub(super) last_modified: Option<i64>,
    pub(super) age: Option<u32>,
    pub(super) no_store: bool,
    pub(super) no_cache: bool,
    pub(super) private: bool,
    pub(super) public: bool,
    pub(super) must_revalidate: bool,
    pub(super) etag: bool,
    pub(super) set_cookie: bool,
}

/// A request as the reference sees it.
#[derive(Clone, Debug, Default)]
pub(super) struct PlainRequest {
    pub(super) authorization: bool,
    pub(super) cookie: bool,
    pub(super) no_store: bool,
    pub(super) query: bool,
}

impl PlainResponse {
    pub(super) fn fields(&self) -> Fields {
        let mut control = Vec::new();
        let mut add = |is_set: bool, text: String| {
            if is_set {
                control.push(text);
            }
        };
        add(self.no_store, "no-store".into());
        add(self.no_cache, "no-cache".into());
        add(self.private, "private".into());
        add(self.public, "public".into());
        add(self.must_revalidate, "must-revalidate".into());
        add(self.max_age.is_some(), format!("max-age={}", self.max_age.unwrap_or(0)));
        add(self.s_maxage.is_some(), format!("s-maxage={}", self.s_maxage.unwrap_or(0)));
        let mut fields = Fields::new();
        if !control.is_empty() {
            fields.push(b"Cache-Control", control.join(", ").as_bytes());
        }
        let dates =
            [("Expires", self.expires), ("Date", self.date), ("Last-Modified", self.last_modified)];
        for (name, offset_s) in dates {
            if let Some(offset_s) = offset_s {
                fields.push(name.as_bytes(), date(offset_s).as_bytes());
            }
        }
        if let Some(age) = self.age {
            fields.push(b"Age", age.to_string().as_bytes());
        }
        if self.etag {
            fields.push(b"ETag", b"\"1\"");
        }
        if self.set_cookie {
            fields.push(b"Set-Cookie", b"a=b");
        }
        fields
    }

    /// Lifetime and initial age, if a shared cache with the default policy stores the response.
    pub(super) fn stored(&self, request: &PlainRequest) -> Option<(u32, u32)> {
        let shares = self.public || self.must_revalidate || self.s_maxage.is_some();
        if request.no_store
            || self.no_store
            || self.private
            || self.set_cookie
            || (request.authorization && !shares)
            || (self.no_cache && !self.etag && self.last_modified.is_none())
        {
            return None;
        }
        let date = self.date.unwrap_or(0);
        let is_heuristic = [200, 203, 204, 300, 301, 308, 404, 405, 410, 414, 501];
        let is_heuristic = is_heuristic.contains(&self.code) || self.public;
        let explicit = self.s_maxage.or(self.max_age).or_else(|| {
            self.expires.map(|expires| u32::try_from((expires - date).max(0)).expect("small"))
        });
        let lifetime = match explicit {
            Some(0) if request.cookie => return None,
            Some(seconds) => seconds,
            None if request.cookie || !is_heuristic => return None,
            None if self.no_cache => 0,
            None if request.query && !self.public => return None,
            None => {
                let unchanged = u32::try_from((date - self.last_modified?).max(0)).expect("small");
                Some((unchanged / 10).min(86_400)).filter(|seconds| *seconds > 0)?
            }
        };
        let apparent = u32::try_from((-date).max(0)).expect("small");
        Some((lifetime.min(365 * 86_400), apparent.max(self.age.unwrap_or(0))))
    }
}

impl PlainRequest {
    pub(super) fn fields(&self) -> Fields {
        let mut fields = Fields::new();
        for (is_set, name, value) in [
            (self.authorization, "Authorization", "Basic eDp5"),
            (self.cookie, "Cookie", "a=b"),
            (self.no_store, "Cache-Control", "no-store"),
        ] {
            if is_set {
                fields.push(name.as_bytes(), value.as_bytes());
            }
        }
        fields
    }
}
