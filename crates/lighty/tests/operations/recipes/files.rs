//! Header fields of files, and generated pages.

use lighty_testkit::backend::{Backend, answer};

use super::applications::is;
use super::trial::Recipe;

const HOST: &str = "www.example.org";

#[test]
fn cache_headers() {
    let recipe = Recipe::new("cache-headers").file("srv/www/assets/app.4f3a.js", "app()\n");
    let recipe = recipe.file("srv/www/logo.png", "png").file("srv/www/style.css", "body {}\n");
    let trial = recipe.file("srv/www/account/index.html", "yours\n").run();
    for (target, caching) in [
        ("/style.css", Some("max-age=86400")),
        ("/account/", Some("no-store")),
        ("/none.png", None),
        ("/assets/app.4f3a.js", Some("max-age=31536000")),
        ("/assets/none.js", None),
    ] {
        let response = trial.get(HOST, target);
        assert_eq!(response.field("Cache-Control"), caching, "{target}: {response:?}");
    }
    assert!(trial.get(HOST, "/logo.png").field("ETag").is_some());
}

#[test]
fn compression() {
    let page = "<p>A line that repeats, as lines of pages do.</p>\n".repeat(60);
    let packed = lighty_testkit::content::pattern(1, 50);
    let recipe = Recipe::new("compression").file("srv/www/index.html", &page);
    let recipe = recipe.file("srv/www/photo.jpg", &page);
    let recipe = recipe.file("srv/www/assets/app.js", &page);
    let other = recipe.path("srv/www/assets/app.js.br");
    lighty_testkit::server::write_file(&other, &packed);
    let trial = recipe.run();
    let accepts = "Accept-Encoding: gzip, br\r\n";
    let script = trial.get_with(HOST, "/assets/app.js", accepts);
    assert_eq!((script.field("Content-Encoding"), &*script.body), (Some("br"), &*packed));
    let photo = trial.get_with(HOST, "/photo.jpg", accepts);
    assert_eq!(photo.field("Content-Encoding"), None);
    let kept = std::fs::read_dir(trial.path("var/cache/lighty/deflate")).expect("the cache");
    assert!(kept.count() > 0, "nothing is kept");
}

#[test]
fn error_pages() {
    let app = Backend::replying(|seen| match seen.target() {
        "/app/broken" => answer("500 So", "", "details of the application"),
        _ => answer("200 OK", "", "fine"),
    });
    let trial = Recipe::new("error-pages")
        .backend("127.0.0.1:3000", app.address())
        .file("srv/errors/404.html", "This page needs no database.\n")
        .file("srv/errors/500.html", "The application is not well.\n")
        .file("srv/www/error.html", "Something is missing.\n")
        .run();
    is(&trial, (HOST, "/"), 200, "home\n");
    is(&trial, (HOST, "/none"), 404, "Something is missing.\n");
}

#[test]
fn directory_listing() {
    let trial = Recipe::new("directory-listing")
        .file("srv/www/download/manual.pdf", "pdf")
        .file("srv/www/download/film.part", "half")
        .file("srv/www/download/.secret", "hidden")
        .file("srv/www/download/README.txt", "About these files")
        .file("srv/www/download/music/song.ogg", "song")
        .run();
    let page = trial.get(HOST, "/download/");
    let text = page.text();
    assert!(text.contains("About these files") && text.contains("href=\"music/\""), "{text}");
    for name in ["film.part", ".secret", "README.txt"] {
        assert!(!text.contains(name), "{name} is shown: {text}");
    }
    is(&trial, (HOST, "/download/film.part"), 200, "half");
}
