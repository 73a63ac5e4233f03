//! Configuration of a provider, its URLs, and its failures.

use std::io;
use std::path::PathBuf;

use lighty_fetch::parse_url;

use crate::remote_keys::is_loopback;
use crate::token::TokenError;

/// Maximum number of requests to a provider that wait or are under way.
pub const JOBS_MAX: usize = 64;

/// The reason why a provider does not sign a user in.
#[derive(Debug, thiserror::Error)]
pub enum ProviderError {
    /// Too many requests wait.
    #[error("{JOBS_MAX} requests wait for the provider already")]
    Busy,
    /// No response.
    #[error("{0}")]
    Io(#[from] io::Error),
    /// Another status than expected.
    #[error("{0} has status {1}")]
    Status(&'static str, u16),
    /// A response that cannot be used.
    #[error("{0}")]
    Malformed(&'static str),
    /// The provider refuses, with a code of RFC 6749 section 5.2.
    #[error("the provider refuses: {0}")]
    Refused(String),
    /// The token about the user is not good.
    #[error("the id_token is not good: {0}")]
    Token(#[from] TokenError),
    /// The token is that of another sign-in.
    #[error("the id_token is that of another sign-in")]
    OtherSignIn,
    /// Discovery has failed a moment ago.
    #[error("its endpoints are unknown")]
    NoEndpoints,
}

/// Kind of a provider.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ProviderKind {
    /// OpenID Connect: the provider issues an `id_token`.
    OpenId,
    /// OAuth 2.0: a resource of the provider names the user.
    OAuth2,
}

/// Configuration of a provider.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ProviderSpec {
    /// Its name in URLs and cookies.
    pub name: String,
    /// Its kind.
    pub kind: ProviderKind,
    /// Its issuer, the beginning of the URL of its metadata; empty for OAuth 2.0.
    pub issuer: String,
    /// Endpoints that are configured, in place of discovered ones.
    pub urls: DiscoveredUrls,
    /// The client's name.
    pub client_id: String,
    /// File with the client's secret.
    pub secret_file: Option<PathBuf>,
    /// File with the authorities that vouch for the provider; `None`: the system's.
    pub ca_file: Option<PathBuf>,
    /// Scopes with spaces between them.
    pub scopes: String,
    /// The provider is asked for further claims.
    pub asks_userinfo: bool,
    /// A list of the user's groups that the provider has apart from the claims.
    pub groups: Option<GroupList>,
}

impl ProviderSpec {
    /// Its identity: with another one, sessions are those of other users. Secrets and scopes may
    /// change.
    pub(crate) fn identity(&self) -> String {
        let place = match self.kind {
            ProviderKind::OpenId => &self.issuer,
            ProviderKind::OAuth2 => &self.urls.authorization,
        };
        format!("{} {place} {}", self.name, self.client_id)
    }
}

/// A resource of the provider that is a list of the user's groups.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GroupList {
    /// Its URL.
    pub url: String,
    /// The member of each element with the group's name, or names of nested ones with dots.
    pub member: String,
    /// The claim that gets the names.
    pub claim: String,
}

/// URLs of a provider.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DiscoveredUrls {
    /// The page where users sign in.
    pub authorization: String,
    /// The endpoint that issues tokens.
    pub token: String,
    /// The resource with claims about the user.
    pub userinfo: Option<String>,
    /// The page that ends the session at the provider.
    pub end_session: Option<String>,
    /// The client's secret is part of the form: the provider does not take it as a password.
    pub posts_secret: bool,
}

/// True if responses of this URL cannot be changed on the way.
#[must_use]
pub fn is_secure_url(url: &str) -> bool {
    parse_url(url).is_some_and(|uri| {
        uri.scheme_str() == Some("https") || is_loopback(uri.host().unwrap_or_default())
    })
}
