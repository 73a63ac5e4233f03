//! Requests to a provider, on its threads: metadata, tokens, claims. All functions block.

use std::time::Duration;

use bytes::Bytes;
use http::Request;
use http::header::{ACCEPT, AUTHORIZATION, CONTENT_TYPE, USER_AGENT};
use lighty_fetch::Fetcher;
use lighty_http::{base64, uri};
use serde_json::Value;

use crate::claims::Claims;
use crate::provider_spec::{DiscoveredUrls, GroupList, ProviderError, ProviderSpec, is_secure_url};

/// Time limit of a request.
const PATIENCE: Duration = Duration::from_secs(10);

/// Tokens that a provider has issued.
#[derive(Clone)]
pub(crate) struct IssuedTokens {
    pub(crate) access_token: String,
    pub(crate) id_token: Option<String>,
    pub(crate) refresh_token: Option<String>,
    pub(crate) expires_in_s: Option<i64>,
}

/// Reads the provider's metadata (OpenID Connect Discovery 1.0). Returns the URLs and that of the
/// keys. Configured URLs take precedence.
pub(crate) fn discover(
    fetcher: &Fetcher,
    spec: &ProviderSpec,
) -> Result<(DiscoveredUrls, String), ProviderError> {
    let url = format!("{}/.well-known/openid-configuration", spec.issuer.trim_end_matches('/'));
    let metadata = get(fetcher, &url, None, "the provider's metadata")?;
    if metadata.text("issuer") != Some(&spec.issuer) {
        return Err(ProviderError::Malformed("the provider's metadata are of another issuer"));
    }
    let secure = |name: &str| match metadata.text(name) {
        Some(url) if is_secure_url(url) => Ok(Some(url.to_owned())),
        Some(_) => Err(ProviderError::Malformed("the provider has an endpoint without https")),
        None => Ok(None),
    };
    let needed = |own: &str, name: &str| match own {
        "" => secure(name)?.ok_or(ProviderError::Malformed("the provider's metadata lack a URL")),
        own => Ok(own.to_owned()),
    };
    let methods: Vec<_> = metadata.texts("token_endpoint_auth_methods_supported").collect();
    let own = &spec.urls;
    let urls = DiscoveredUrls {
        authorization: needed(&own.authorization, "authorization_endpoint")?,
        token: needed(&own.token, "token_endpoint")?,
        userinfo: own.userinfo.clone().or(secure("userinfo_endpoint")?),
        end_session: own.end_session.clone().or(secure("end_session_endpoint")?),
        posts_secret: own.posts_secret
            || !methods.is_empty() && !methods.contains(&"client_secret_basic"),
    };
    Ok((urls, needed("", "jwks_uri")?))
}

/// A form for the endpoint that issues tokens.
pub(crate) struct TokenForm {
    pub(crate) client_id: String,
    pub(crate) secret: Option<String>,
    pub(crate) fields: Vec<(&'static str, String)>,
}

/// Requests tokens (RFC 6749 section 4.1.3 and 6).
pub(crate) fn request_tokens(
    fetcher: &Fetcher,
    urls: &DiscoveredUrls,
    form: &TokenForm,
) -> Result<IssuedTokens, ProviderError> {
    let mut body = Vec::new();
    let mut pair = |name: &str, value: &str| {
        if !body.is_empty() {
            body.push(b'&');
        }
        body.extend_from_slice(name.as_bytes());
        body.push(b'=');
        uri::encode_component(value.as_bytes(), &mut body);
    };
    form.fields.iter().for_each(|(name, value)| pair(name, value));
    let as_password = form.secret.as_ref().filter(|_| !urls.posts_secret);
    if as_password.is_none() {
        pair("client_id", &form.client_id);
    }
    if let (Some(secret), None) = (&form.secret, as_password) {
        pair("client_secret", secret);
    }
    let mut request = Request::post(&urls.token)
        .header(CONTENT_TYPE, "application/x-www-form-urlencoded")
        .header(ACCEPT, "application/json");
    if let Some(secret) = as_password {
        request = request.header(AUTHORIZATION, password(&form.client_id, secret));
    }
    let request = request.body(body).map_err(std::io::Error::other)?;
    let response = fetcher.fetch(&request, PATIENCE)?;
    let status = response.status().as_u16();
    let answer = Claims::parse(response.body());
    // GitHub reports errors with status 200.
    if let Some(error) = answer.as_ref().and_then(|answer| answer.text("error")) {
        let code: String = error.chars().filter(char::is_ascii_graphic).take(64).collect();
        return Err(ProviderError::Refused(code));
    }
    if status != 200 {
        return Err(ProviderError::Status("the response with tokens", status));
    }
    let answer = answer.ok_or(ProviderError::Malformed("the response with tokens is no JSON"))?;
    let text = |name: &str| answer.text(name).filter(|text| !text.is_empty()).map(str::to_owned);
    Ok(IssuedTokens {
        access_token: text("access_token")
            .ok_or(ProviderError::Malformed("the response has no access_token"))?,
        id_token: text("id_token"),
        refresh_token: text("refresh_token"),
        expires_in_s: answer.find("expires_in").and_then(Value::as_i64).filter(|s| *s > 0),
    })
}

/// Name and password of the client; both are form-encoded first (RFC 6749 section 2.3.1).
fn password(client_id: &str, secret: &str) -> String {
    let mut pair = Vec::new();
    uri::encode_component(client_id.as_bytes(), &mut pair);
    pair.push(b':');
    uri::encode_component(secret.as_bytes(), &mut pair);
    let mut value = b"Basic ".to_vec();
    base64::encode(&pair, &mut value);
    String::from_utf8(value).unwrap_or_default()
}

/// Requests claims about a user.
pub(crate) fn request_userinfo(
    fetcher: &Fetcher,
    url: &str,
    access_token: &str,
) -> Result<Claims, ProviderError> {
    get(fetcher, url, Some(access_token), "the response with claims")
}

/// Requests the user's groups: a claim with their names.
pub(crate) fn request_groups(
    fetcher: &Fetcher,
    list: &GroupList,
    access_token: &str,
) -> Result<Claims, ProviderError> {
    let body = get_body(fetcher, &list.url, Some(access_token), "the list of groups")?;
    let groups = Claims::parse_list(&body).ok_or(ProviderError::Malformed(
        "the list of groups is no JSON array of at most 1,000 objects",
    ))?;
    let names = groups.iter().filter_map(|group| group.simple_text(&list.member));
    Ok(Claims::of_names(&list.claim, names))
}

fn get(
    fetcher: &Fetcher,
    url: &str,
    token: Option<&str>,
    subject: &'static str,
) -> Result<Claims, ProviderError> {
    let body = get_body(fetcher, url, token, subject)?;
    Claims::parse(&body).ok_or(ProviderError::Malformed("a response is no JSON object"))
}

fn get_body(
    fetcher: &Fetcher,
    url: &str,
    token: Option<&str>,
    subject: &'static str,
) -> Result<Bytes, ProviderError> {
    // GitHub demands a name of the client.
    let mut request =
        Request::get(url).header(ACCEPT, "application/json").header(USER_AGENT, "sign-in");
    if let Some(token) = token {
        request = request.header(AUTHORIZATION, format!("Bearer {token}"));
    }
    let request = request.body("").map_err(std::io::Error::other)?;
    let response = fetcher.fetch(&request, PATIENCE)?;
    if response.status().as_u16() != 200 {
        return Err(ProviderError::Status(subject, response.status().as_u16()));
    }
    Ok(response.into_body())
}
