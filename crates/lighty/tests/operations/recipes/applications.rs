//! Applications behind the server: PHP, reverse proxies, WebSocket, gRPC, containers, WebDAV.

use lighty_testkit::backend::{Backend, answer};
use lighty_testkit::lighty;
use lighty_testkit::real::grpc::{GrpcService, Library, call};
use lighty_testkit::real::php::PhpFpm;
use lighty_testkit::real::websocket::WebSocketServer;
use lighty_testkit::real::{Listen, find};
use lighty_testkit::tls::Authority;
use lighty_testkit::websocket::{Opcode, WebSocket};

use super::trial::{Recipe, Trial};

const HOST: &str = "www.example.org";

/// Responds with method and target.
pub(super) fn echo() -> Backend {
    Backend::replying(|seen| {
        answer("200 OK", "", &format!("{} {}\n", seen.method(), seen.target()))
    })
}

#[track_caller]
pub(super) fn is(trial: &Trial, (host, target): (&str, &str), status: u16, text: &str) {
    let response = trial.get(host, target);
    let given = (response.status, response.text());
    assert_eq!(given, (status, text), "{host}{target}: {response:?}\n{}", trial.server().log());
}

/// The page with a PHP-FPM behind its socket.
fn with_php(recipe: Recipe, fpm: &PhpFpm) -> Trial {
    let Listen::Unix(socket) = fpm.listen() else { panic!("PHP-FPM has a socket") };
    recipe.replace("/run/php/php-fpm.sock", socket.display()).run()
}

#[test]
fn wordpress() {
    let Some(fpm) = PhpFpm::unix(2) else { return };
    let trial = with_php(Recipe::new("wordpress"), &fpm);
    let get = |target, status, text| is(&trial, (HOST, target), status, text);
    let permalink = "/hello-world/?replytocom=1";
    get(permalink, 200, "front GET /hello-world/?replytocom=1 query=replytocom=1\n");
    get("/", 200, "front GET / query=\n");
    get("/?s=a&paged=2", 200, "front GET /?s=a&paged=2 query=s=a&paged=2\n");
    get("/wp-json/wp/v2/posts", 200, "front GET /wp-json/wp/v2/posts query=\n");
    get("/wp-admin/?a=1", 200, "admin /wp-admin/index.php /wp-admin/?a=1\n");
    get("/wp-administrators", 200, "front GET /wp-administrators query=\n");
    get("/wp-content/uploads/photo.jpg", 200, "a photo\n");
    assert_eq!(trial.get(HOST, "/.git/config").status, 403);
    for script in ["shell.php", "shell.php/photo.jpg", "shell%2ephp", "photo.jpg/shell.php"] {
        let response = trial.get(HOST, &format!("/wp-content/uploads/{script}"));
        assert_eq!(response.status, 403, "{script}: {response:?}");
    }
}

#[test]
fn laravel() {
    let Some(fpm) = PhpFpm::unix(2) else { return };
    let trial = with_php(Recipe::new("laravel"), &fpm);
    let get = |target, status, text| is(&trial, (HOST, target), status, text);
    get("/users/7?tab=posts", 200, "front GET /users/7?tab=posts query=tab=posts\n");
    get("/", 200, "front GET / query=\n");
    get("/build/", 200, "front GET /build/ query=\n");
    get("/%c3%a4/b%20c?d=%26", 200, "front GET /%c3%a4/b%20c?d=%26 query=d=%26\n");
    assert_eq!(trial.get(HOST, "/.git/config").status, 403);
    get("/.well-known/change-password", 200, "front GET /.well-known/change-password query=\n");
    let posted = trial.sh("curl -s -d name=kim http://www.example.org/users");
    assert_eq!(posted, "front POST /users query=\n");
}

#[test]
fn dokuwiki() {
    let Some(fpm) = PhpFpm::unix(2) else { return };
    let trial = with_php(Recipe::new("dokuwiki"), &fpm);
    let get = |target, status, text| is(&trial, ("wiki.example.org", target), status, text);
    get("/", 200, "page start show\n");
    get("/project/plan?do=edit", 200, "page project/plan edit\n");
    get("/doku.php?id=start&do=index", 200, "page start index\n");
    get("/_media/a:photo.jpg?w=100", 200, "media a:photo.jpg 100\n");
    get("/_detail/a:photo.jpg", 200, "detail a:photo.jpg\n");
    get("/_export/pdf/project/plan", 200, "page project/plan export_pdf\n");
    get("/lib/tpl/style.css", 200, "x\n");
    for target in ["/data/pages/start.txt", "/%64ata/pages/start.txt", "/conf/", "/data", "/README"]
    {
        assert_eq!(trial.get("wiki.example.org", target).status, 403, "{target}");
    }
}

#[test]
fn nextcloud() {
    let Some(fpm) = PhpFpm::unix(2) else { return };
    let trial = with_php(Recipe::new("nextcloud"), &fpm);
    let get = |target, status, text| is(&trial, ("cloud.example.org", target), status, text);
    get("/apps/files/?dir=/", 200, "front GET /apps/files/ uri=/apps/files/?dir=/ query=dir=/\n");
    get("/index.php/login", 200, "front GET /login uri=/index.php/login query=\n");
    get("/s/a%20b", 200, "front GET /s/a b uri=/s/a%20b query=\n");
    get("/core/css/server.css", 200, "body {}\n");
    get("/remote.php/dav/files/kim/a.txt", 200, "GET /dav/files/kim/a.txt 0\n");
    for target in ["/config/config.php", "/%64ata/nextcloud.log", "/.htaccess", "/occ", "/lib"] {
        assert_eq!(trial.get("cloud.example.org", target).status, 403, "{target}");
    }
    let put = "head -c 300000 /dev/zero | curl -s -T - http://www.example.org/remote.php/dav/f/a";
    assert_eq!(trial.sh(put), "PUT /dav/f/a 300000\n");
}

#[test]
fn single_page_application() {
    let api = echo();
    let page = "<!doctype html><title>app</title>\n";
    let recipe = Recipe::new("single-page-app").backend("127.0.0.1:3000", api.address());
    let recipe = recipe.file("srv/www/spa/index.html", page);
    let trial = recipe.file("srv/www/spa/assets/app.4f3a.js", "app()\n").run();
    is(&trial, (HOST, "/"), 200, page);
    is(&trial, (HOST, "/users/7?tab=posts"), 200, page);
    is(&trial, (HOST, "/api/users?page=2"), 200, "GET /api/users?page=2\n");
    assert_eq!(trial.sh("curl -s -d x http://www.example.org/api/users"), "POST /api/users\n");
    let caching = |target| trial.get(HOST, target).field("Cache-Control").map(str::to_owned);
    assert_eq!(caching("/users/7").as_deref(), Some("max-age=0"));
    assert_eq!(caching("/assets/app.4f3a.js").as_deref(), Some("max-age=31536000"));
    // A cached 404 would hide the asset for a year, and the API sets its own cache headers.
    assert_eq!(caching("/assets/app.0000.js"), None);
    assert_eq!(caching("/api/users"), None);
}

#[test]
fn reverse_proxy() {
    let app = echo();
    let recipe = Recipe::new("reverse-proxy").backend("127.0.0.1:3000", app.address());
    let recipe = recipe.replace("unix:/run/app/gunicorn.sock", app.address());
    let trial = recipe.file("srv/app/public/static/app.css", "body {}\n").run();
    is(&trial, ("app.example.org", "/users?page=2"), 200, "GET /users?page=2\n");
    let seen = app.requests_for("/users?page=2").pop().expect("a request");
    assert_eq!(seen.field("Host"), Some("app.example.org"));
    assert_eq!(seen.field("X-Forwarded-For"), Some("127.0.0.1"));
    assert_eq!(seen.field("X-Forwarded-Proto"), Some("http"));
    assert_eq!(seen.field("X-Forwarded-Host"), Some("app.example.org"));
}

#[test]
fn an_application_beneath_a_path() {
    let app = Backend::replying(|seen| match seen.target() {
        "/private" => answer("302 Found", "Location: /login\r\nSet-Cookie: id=7; Path=/\r\n", ""),
        target => answer("200 OK", "", target),
    });
    let trial = Recipe::new("prefix").backend("127.0.0.1:3000", app.address()).run();
    is(&trial, (HOST, "/wiki/start?rev=2"), 200, "/start?rev=2");
    is(&trial, (HOST, "/wiki/"), 200, "/");
    assert_eq!(trial.get(HOST, "/wikipedia").status, 404);
    let response = trial.get(HOST, "/wiki/private");
    assert_eq!(response.field("Location"), Some("/wiki/login"));
    assert_eq!(response.field("Set-Cookie"), Some("id=7; Path=/wiki/"));
    let redirected = trial.get(HOST, "/wiki?rev=2");
    assert_eq!(redirected.field("Location"), Some("/wiki/?rev=2"));
}

#[test]
fn websocket() {
    let Some(app) = WebSocketServer::start() else { return };
    let address = app.listen().address();
    let trial = Recipe::new("websocket").backend("127.0.0.1:3000", address).run();
    let mut socket = WebSocket::open(trial.connect(), "/socket/", "");
    socket.send(Opcode::Text, b"hello");
    assert_eq!(socket.read().payload, b"hello");
    socket.send(Opcode::Close, b"");
    assert!(socket.read().is(Opcode::Close));
}

#[test]
fn grpc() {
    let Some(service) = GrpcService::start(Library::Go, None) else { return };
    let recipe = Recipe::new("grpc");
    let authority = Authority::new(&recipe.path(""));
    authority.issue("etc/lighty/example.pem", &[HOST, "127.0.0.1"]);
    let trial = recipe.backend("127.0.0.1:50051", service.listen().address()).run();
    let direct = call(Library::Go, &service.listen().address().to_string(), None);
    let clear = call(Library::Go, &trial.address().to_string(), None);
    assert_eq!(clear, direct, "{}", trial.server().log());
    let file = trial.path("ca.pem");
    let secure = call(Library::Go, &trial.https_address().to_string(), Some(&file));
    assert_eq!(secure, direct, "{}", trial.server().log());
}

#[test]
fn django() {
    let app = echo();
    let trial = Recipe::new("django")
        .replace("unix:/run/app/gunicorn.sock", app.address())
        .file("srv/app/static/app.css", "body {}\n")
        .file("srv/app/media/kim.jpg", "kim\n")
        .run();
    is(&trial, (HOST, "/media/kim.jpg"), 200, "kim\n");
    is(&trial, (HOST, "/admin/?a=%20"), 200, "GET /admin/?a=%20\n");
    is(&trial, (HOST, "/staticfiles"), 200, "GET /staticfiles\n");
    let seen = app.requests_for("/staticfiles").pop().expect("a request");
    assert_eq!(seen.field("X-Forwarded-Proto"), Some("http"));
}

#[test]
fn server_sent_events() {
    let (sender, receiver) = std::sync::mpsc::channel::<()>();
    let receiver = std::sync::Mutex::new(receiver);
    let app = Backend::after_request(move |peer| {
        peer.send("HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n\r\ndata: 1\n\n");
        // The second event is sent when the client has had the first one.
        let wait = std::time::Duration::from_secs(60);
        let _ = receiver.lock().expect("a receiver").recv_timeout(wait);
        peer.send("data: 2\n\n");
    });
    sender.send(()).expect("for the page's request");
    let trial = Recipe::new("server-sent-events").backend("127.0.0.1:3000", app.address()).run();
    let mut client = trial.connect();
    client.send("GET /events HTTP/1.1\r\nHost: www.example.org\r\nConnection: close\r\n\r\n");
    let head = client.response_head();
    assert_eq!(head.field("Content-Type"), Some("text/event-stream"));
    let first = client.read_exact(8).expect("the first event");
    assert!(String::from_utf8_lossy(&first).contains("dat"), "{first:?}");
    sender.send(()).expect("the backend waits");
    let (rest, _) = client.read_to_end();
    assert!(String::from_utf8_lossy(&rest).contains("data: 2"), "{rest:?}");
}

fn git(directory: &std::path::Path, arguments: &[&str]) -> bool {
    let mut command = std::process::Command::new("git");
    command.args(["-c", "user.name=kim", "-c", "user.email=kim@example.org"]).args(arguments);
    command.current_dir(directory).env("HOME", directory).env("GIT_CONFIG_NOSYSTEM", "1");
    let output = command.env("GIT_TERMINAL_PROMPT", "0").output().expect("git");
    output.status.success()
}

#[test]
fn git_over_http() {
    let backend = "/usr/lib/git-core/git-http-backend";
    let Some(backend) = find(&[backend, "/usr/libexec/git-core/git-http-backend"]) else { return };
    let recipe = Recipe::new("git").file("etc/lighty/htpasswd", super::access::KIM);
    let top = recipe.path("");
    assert!(git(&top, &["init", "-q", "--bare", "srv/git/project.git"]));
    let trial = recipe.replace("/usr/lib/git-core/git-http-backend", backend.display()).run();
    let url = |user: &str| format!("http://{user}{}/git/project.git", trial.address());
    assert!(git(&top, &["clone", "-q", &url(""), "work"]));
    let work = trial.path("work");
    lighty_testkit::server::write_file(&work.join("file"), "text\n");
    assert!(git(&work, &["add", "file"]) && git(&work, &["commit", "-q", "-m", "one"]));
    assert!(!git(&work, &["push", "-q", &url(""), "HEAD:main"]), "a stranger pushes");
    let log = || trial.server().log();
    let known = url("kim:correct%20horse@");
    assert!(git(&work, &["push", "-q", &known, "HEAD:main"]), "{}", log());
    assert!(git(&top, &["clone", "-q", "-b", "main", &url(""), "again"]), "{}", log());
    assert!(trial.path("again/file").exists());
}

#[test]
fn docker_compose() {
    let app = echo();
    let trial = Recipe::new("docker-compose").replace("app:3000", app.address()).run();
    is(&trial, ("app.example.org", "/users"), 200, "GET /users\n");
    is(&trial, (HOST, "/"), 200, "home\n");
    // A service that is not up yet.
    let server = lighty!().in_front_of("app.invalid:3000").start();
    assert_eq!(server.get("/users").status, 503);
}

#[test]
fn webdav() {
    let recipe = Recipe::new("webdav").file("etc/lighty/htpasswd", super::access::KIM);
    let trial = recipe.file("srv/dav/old.txt", "old\n").run();
    let note = std::fs::read_to_string(trial.path("srv/dav/note.txt")).expect("the upload");
    assert_eq!(note, "hello\n");
    let lock = trial.sh(
        "curl -s -o /dev/null -w '%{http_code} %header{lock-token}' -u 'kim:correct horse' -X LOCK \
         -d '<lockinfo xmlns=\"DAV:\"><lockscope><exclusive/></lockscope><locktype><write/>\
         </locktype></lockinfo>' http://www.example.org/dav/note.txt",
    );
    assert!(lock.starts_with("200 <"), "{lock}\n{}", trial.server().log());
    assert_eq!(trial.get(HOST, "/dav/old.txt").status, 401);
}
