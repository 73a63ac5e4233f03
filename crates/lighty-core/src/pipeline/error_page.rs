//! The built-in error page, used if neither a handler nor the operator provides one.

use lighty_http::Status;

use crate::exchange::request_id::RequestId;
use crate::exchange::response::Response;

/// Inline, because after an error other resources may be unavailable.
const STYLE: &str = "body{font:1.05rem/1.5 system-ui,sans-serif;max-width:34rem;margin:12vh auto;\
     padding:0 1.25rem}h1{font-size:1.6rem;line-height:1.2;margin:0 0 .75rem}p{margin:.5rem 0}\
     .id{margin-top:2rem;font-size:.85rem;opacity:.65}\
     body{background:light-dark(#fff,#15181d);color:light-dark(#1c2026,#e3e7ed)}\
     a{color:light-dark(#0a56b3,#8bb9ff)}";

/// Fills in the page for the response's status. An operator finds the log lines by `id`.
pub fn fill(response: &mut Response, id: RequestId) {
    let status = response.status;
    let page = format!(
        "<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n\
         <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n\
         <meta name=\"color-scheme\" content=\"light dark\">\n\
         <title>{code} {reason}</title>\n<style>{STYLE}</style>\n</head>\n<body>\n<main>\n\
         <h1>{code} {reason}</h1>\n<p>{message}</p>\n\
         <p class=\"id\">Request {id}</p>\n</main>\n</body>\n</html>\n",
        code = status.code(),
        reason = status.reason(),
        message = message(status),
    );
    response.set_text(status, "text/html; charset=utf-8", page);
}

/// Explanation of the status for users, with a possible remedy.
fn message(status: Status) -> &'static str {
    match status.code() {
        400 => "The server does not understand this request. Check the address.",
        401 => "This page asks for a name and a password.",
        403 => "You may not see this page.",
        404 => {
            "There is no page at this address. Check it for typing errors, or go to the \
             <a href=\"/\">start page</a>."
        }
        405 => "This page does not take requests of this kind.",
        406 => "This page does not exist in a form that your browser takes.",
        408 => "The request took too long to arrive. Try again.",
        409 | 412 => "The page has changed in the meantime. Load it again.",
        410 => "This page was here and is gone.",
        411 => "The request does not say how long it is.",
        413 => "What you sent is larger than this site takes.",
        414 => "The address is longer than this site takes.",
        415 => "This page does not take content of this type.",
        416 => "The file does not have the part that was asked for.",
        417 | 422 | 424 => "The server cannot do what this request asks for.",
        421 => "This server does not answer for that site.",
        423 => "Somebody else is changing this file. Try again later.",
        429 => "Too many requests came from your address. Wait a moment, then try again.",
        431 => {
            "Your browser sent more than this site takes. Deleting its cookies for this site may help."
        }
        501 => "The server cannot do this.",
        502 => "The application behind this site gave no usable response. Try again in a moment.",
        503 => "The site is busy or under maintenance. Try again in a moment.",
        504 => "The application behind this site did not answer in time. Try again in a moment.",
        505 => "Your program speaks a version of HTTP that this server does not know.",
        507 => "The server has no room left for this.",
        code if code < 500 => "The server does not accept this request.",
        _ => "Something went wrong on the server. It is no fault of yours; try again later.",
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::exchange::body::Body;
    use crate::machine::random::Random;

    #[test]
    fn every_error_has_words_and_every_page_of_a_status_one_length() {
        let random = Random::new(1);
        for code in 400..600 {
            let status = Status::new(code).expect("a status");
            let mut lengths = [0; 2];
            for length in &mut lengths {
                let mut response = Response { status, ..Response::default() };
                let id = RequestId::next(&random);
                fill(&mut response, id);
                let Body::Memory(page) = &response.body else { panic!("a page") };
                let page = std::str::from_utf8(page).expect("UTF-8");
                assert!(page.contains(&format!("<h1>{code}")), "{page}");
                assert!(page.contains(&id.to_string()) && page.contains("viewport"), "{page}");
                *length = page.len();
            }
            assert_eq!(lengths[0], lengths[1]);
        }
    }
}
