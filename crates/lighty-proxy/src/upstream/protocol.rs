//! The protocols of backends.
//!
//! To add one: a file in `session/` and a line of [`protocols`]. From that line follow its variant
//! of [`Protocol`], its options, its word of `proxy-core.protocol` and its session.

use std::sync::Arc;

/// The role of a FastCGI application (FastCGI 1.0, section 6).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum FastcgiRole {
    /// Serves requests, like any backend.
    #[default]
    Responder,
    /// Responds with 200 to permit a request; its `Variable-*` fields join the environment.
    Authorizer,
}

/// Form in which a protocol describes a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum RequestForm {
    /// A head like the client's.
    Http,
    /// CGI variables, for the script that the path leads to.
    Script,
    /// CGI variables, for one application that owns all paths.
    Application,
    /// A form of its own.
    Packet,
}

/// Passes every protocol to a macro. Each line: its variant with its options and their defaults,
/// its word of `proxy-core.protocol`, the default port of a backend, its form of requests, and the
/// file and function that create its session.
macro_rules! protocols {
    ($then:ident) => {
        $then! {
            /// HTTP/1.1, or 1.0 where the backend is old.
            Http { force_http10: bool = false } "http" 80 Http http::session;
            /// HTTP/2, over TLS or with prior knowledge.
            Http2 {} "h2" 80 Http http2::session;
            /// FastCGI 1.0.
            Fastcgi { role: FastcgiRole = FastcgiRole::Responder } "fastcgi" 9000 Script fastcgi::session;
            /// SCGI.
            Scgi {} "scgi" 4000 Application scgi::session;
            /// uwsgi; `modifier1` is 0 for Python applications, 14 for PHP.
            Uwsgi { modifier1: u8 = 0 } "uwsgi" 3031 Application uwsgi::session;
            /// AJP13; `packet_bytes` is Tomcat's `packetSize`, 8192 to 65536.
            Ajp13 { secret: Option<Arc<str>> = None, packet_bytes: usize = 8192 } "ajp13" 8009 Packet ajp13::session;
        }
    };
}
pub(crate) use protocols;

macro_rules! define {
    ($(
        $(#[$about:meta])*
        $variant:ident { $($option:ident: $type:ty = $default:expr),* }
        $word:literal $port:literal $request:ident $file:ident::$session:ident;
    )*) => {
        /// The protocol of a backend, with its options.
        #[derive(Clone, Debug, PartialEq, Eq, Hash)]
        pub enum Protocol {
            $($(#[$about])* $variant {
                $(
                    /// An option of the protocol; a directive may change its default.
                    $option: $type
                ),*
            },)*
            /// Bytes both ways as they come (`sockproxy.server`).
            Raw,
        }

        /// The options of all protocols.
        #[derive(Clone, Debug)]
        pub(crate) struct ProtocolOptions {
            $($(pub(crate) $option: $type,)*)*
        }

        impl Default for ProtocolOptions {
            fn default() -> Self {
                Self { $($($option: $default,)*)* }
            }
        }

        /// A protocol without its options.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub(crate) enum ProtocolName {
            $($variant,)*
        }

        impl ProtocolName {
            /// Names of `proxy-core.protocol`.
            pub(crate) const NAMES: &'static [&'static str] = &[$($word),*];

            /// Returns the protocol of a word, by its index in [`ProtocolName::NAMES`].
            pub(crate) fn nth(index: usize) -> Self {
                [$(Self::$variant),*][index]
            }

            /// Returns the default port of a backend.
            pub(crate) fn port(self) -> u16 {
                match self {
                    $(Self::$variant => $port,)*
                }
            }

            /// Returns the protocol with its part of the options.
            pub(crate) fn with(self, options: &ProtocolOptions) -> Protocol {
                match self {
                    $(Self::$variant => {
                        Protocol::$variant { $($option: options.$option.clone()),* }
                    })*
                }
            }
        }

        impl Protocol {
            /// Returns its word of `proxy-core.protocol`.
            pub(crate) fn word(&self) -> &'static str {
                match self {
                    $(Self::$variant { .. } => $word,)*
                    Self::Raw => "raw",
                }
            }

            fn request(&self) -> RequestForm {
                match self {
                    $(Self::$variant { .. } => RequestForm::$request,)*
                    Self::Raw => RequestForm::Packet,
                }
            }
        }

        #[cfg(test)]
        /// The files of the sessions, one for each line.
        const FILES: &[&str] = &[$(stringify!($file)),*];
    };
}
protocols!(define);

impl Protocol {
    /// Returns true if requests are described by CGI variables.
    pub fn is_like_cgi(&self) -> bool {
        matches!(self.request(), RequestForm::Script | RequestForm::Application)
    }

    /// Returns true if a backend is a single application that owns all paths.
    pub fn is_one_application(&self) -> bool {
        self.request() == RequestForm::Application
    }

    /// Returns true if backends speak HTTP.
    pub fn is_http(&self) -> bool {
        self.request() == RequestForm::Http
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn a_protocol_is_one_line_and_its_session_a_file() {
        let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/src/session");
        let files: BTreeSet<String> = std::fs::read_dir(folder)
            .expect("the sessions")
            .filter_map(|entry| Some(entry.ok()?.path().file_stem()?.to_str()?.to_owned()))
            .collect();
        let named: BTreeSet<String> = FILES.iter().map(|file| (*file).to_owned()).collect();
        assert_eq!(files, named);
        let mut names = ProtocolName::NAMES.to_vec();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), FILES.len());
    }
}
