//! Stored responses: their figures, and purges.

use lighty_testkit::backend::answer;

use super::*;

#[test]
fn stores_are_listed_and_purged() {
    let tagged = "Cache-Control: max-age=600\r\nCache-Tag: news\r\n";
    let backend = Backend::replying(move |seen| match seen.target() {
        "/news" => answer("200 OK", tagged, "page"),
        _ => answer("200 OK", "Cache-Control: max-age=600\r\n", "page"),
    });
    let server = site()
        .in_front_of(&backend.name())
        .config("cache.stores = ( \"pages\" => ( \"memory\" => \"4M\" ) )\ncache.store = \"pages\"")
        .start();
    assert_eq!(done(&server, &["cache", "status", "--format", "json"]).trim(), "[]");
    let fetches = || {
        let targets = ["/", "/b", "/news"];
        targets.iter().for_each(|target| assert_eq!(server.get(target).text(), "page"));
        backend.requests().len()
    };
    assert_eq!((fetches(), fetches()), (3, 3));
    let listed = done(&server, &["cache", "status", "--format", "json"]);
    let listed: Value = serde_json::from_str(&listed).expect("JSON");
    for (figure, value) in [("objects", 3), ("hit", 3), ("miss", 3), ("saved-bytes", 12)] {
        assert_eq!(listed[0][figure], value, "{listed}");
    }
    assert_eq!(listed[0]["store"], "pages");
    let address = server.address();
    for (arguments, fetched) in [
        (vec!["tag".to_owned(), "news".to_owned()], 4),
        (vec!["url".to_owned(), format!("http://{address}/b")], 4),
        (vec!["url".to_owned(), "http://localhost/b".to_owned()], 5),
        (vec!["prefix".to_owned(), "LOCALHOST/n".to_owned()], 6),
        (vec!["host".to_owned(), "localhost".to_owned(), "--soft".to_owned()], 9),
        (vec!["all".to_owned()], 12),
    ] {
        let mut whole = vec!["cache", "purge"];
        whole.extend(arguments.iter().map(String::as_str));
        assert!(done(&server, &whole).contains("purged: "), "{whole:?}");
        assert_eq!(fetches(), fetched, "{whole:?}");
    }
    for (arguments, error) in [
        (["cache", "purge", "all", "x"], "all takes no value"),
        (["cache", "purge", "tag", ""], "the other scopes take one"),
        (["cache", "purge", "url", "localhost"], "has a host and a path"),
        (["cache", "purge", "prefix", "/b"], "has a host and a path"),
    ] {
        let (status, _, err) = ctl(&server, &arguments);
        assert!(status == 1 && err.contains(error), "{arguments:?}: {err}");
    }
}
