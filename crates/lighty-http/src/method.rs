//! Request methods.

/// Generates the enum and both directions of the table.
macro_rules! methods {
    ($($variant:ident = $name:literal,)*) => {
        /// A method known to the server: RFC 9110 section 9, WebDAV (RFC 4918, 3253, 3648, 3744,
        /// 4437, 4791, 5323, 5842), QUERY, and M-SEARCH of UPnP.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        #[repr(u8)]
        #[allow(missing_docs, reason = "each variant is documented by its name")]
        pub enum Method {
            $($variant,)*
        }

        const ALL: &[Method] = &[$(Method::$variant,)*];
        const NAMES: &[&str] = &[$($name,)*];
    };
}

methods! {
    Get = "GET",
    Head = "HEAD",
    Post = "POST",
    Put = "PUT",
    Delete = "DELETE",
    Options = "OPTIONS",
    Patch = "PATCH",
    Connect = "CONNECT",
    Trace = "TRACE",
    Query = "QUERY",
    Propfind = "PROPFIND",
    Proppatch = "PROPPATCH",
    Mkcol = "MKCOL",
    Copy = "COPY",
    Move = "MOVE",
    Lock = "LOCK",
    Unlock = "UNLOCK",
    Search = "SEARCH",
    Acl = "ACL",
    Report = "REPORT",
    VersionControl = "VERSION-CONTROL",
    Checkin = "CHECKIN",
    Checkout = "CHECKOUT",
    Uncheckout = "UNCHECKOUT",
    Update = "UPDATE",
    Label = "LABEL",
    Merge = "MERGE",
    Mkactivity = "MKACTIVITY",
    Mkworkspace = "MKWORKSPACE",
    Mkcalendar = "MKCALENDAR",
    Mkredirectref = "MKREDIRECTREF",
    Updateredirectref = "UPDATEREDIRECTREF",
    BaselineControl = "BASELINE-CONTROL",
    Orderpatch = "ORDERPATCH",
    Bind = "BIND",
    Unbind = "UNBIND",
    Rebind = "REBIND",
    Link = "LINK",
    Unlink = "UNLINK",
    Msearch = "M-SEARCH",
}

impl Method {
    /// Names are case-sensitive (RFC 9110 section 9.1). The caller should respond with 501 to
    /// `None`.
    #[must_use]
    pub fn from_bytes(name: &[u8]) -> Option<Self> {
        match name {
            b"GET" => Some(Self::Get),
            b"HEAD" => Some(Self::Head),
            b"POST" => Some(Self::Post),
            _ => NAMES.iter().position(|known| known.as_bytes() == name).map(|index| ALL[index]),
        }
    }

    /// The name on the wire.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        NAMES[self as usize]
    }

    /// All of them.
    #[must_use]
    pub fn all() -> &'static [Self] {
        ALL
    }

    /// A safe method: RFC 9110 section 9.2.1.
    #[must_use]
    pub const fn is_safe(self) -> bool {
        matches!(
            self,
            Self::Get | Self::Head | Self::Options | Self::Trace | Self::Query | Self::Propfind
        ) || matches!(self, Self::Report | Self::Search)
    }

    /// An idempotent method: RFC 9110 section 9.2.2. It may be resent to a second backend after the
    /// first failed.
    #[must_use]
    pub const fn is_idempotent(self) -> bool {
        self.is_safe()
            || matches!(self, Self::Put | Self::Delete | Self::Proppatch | Self::Mkcol | Self::Copy)
            || matches!(self, Self::Move | Self::Unlock | Self::Acl | Self::Link | Self::Unlink)
    }

    /// GET or HEAD: the methods served by a file.
    #[must_use]
    pub const fn is_get_or_head(self) -> bool {
        matches!(self, Self::Get | Self::Head)
    }
}

impl core::fmt::Display for Method {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.write_str(self.as_str())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_round_trip() {
        for &method in Method::all() {
            assert_eq!(Method::from_bytes(method.as_str().as_bytes()), Some(method));
        }
    }

    #[test]
    fn names_are_case_sensitive() {
        for name in ["", "get", "Get", "GETT", "GE", "PRI"] {
            assert_eq!(Method::from_bytes(name.as_bytes()), None, "{name}");
        }
    }

    #[test]
    fn safe_methods_are_idempotent() {
        assert!(Method::Get.is_safe() && !Method::Post.is_safe() && !Method::Put.is_safe());
        assert!(Method::Put.is_idempotent() && !Method::Post.is_idempotent());
        assert!(Method::all().iter().all(|method| !method.is_safe() || method.is_idempotent()));
    }
}
