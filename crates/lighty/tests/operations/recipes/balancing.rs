//! Several backends, releases, and limits.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use lighty_testkit::backend::{Backend, answer};
use lighty_testkit::origin::Origin;
use lighty_testkit::server::write_file;
use lighty_testkit::wait_until;

use super::applications::{echo, is};
use super::trial::{Recipe, Trial};

const HOST: &str = "www.example.org";

/// Longer than a check takes on a busy machine.
const PATIENCE: Duration = Duration::from_secs(60);

/// Waits until 10 requests in succession get a response with this text.
#[track_caller]
fn await_text(trial: &Trial, text: &str) {
    let all = || {
        let given = (0..10).map(|_| trial.get(HOST, "/name"));
        given.into_iter().all(|response| response.status == 200 && response.text() == text)
    };
    assert!(wait_until(PATIENCE, all), "not only {text}: {}", trial.server().log());
}

#[test]
fn load_balancing() {
    let [first, mut second, backup] =
        [1, 2, 3].map(|number| Some(Origin::start(&format!("server 10.0.0.{number}\n"))));
    let address = |origin: &Option<Origin>| origin.as_ref().expect("it runs").address();
    let trial = Recipe::new("load-balancing")
        .backend("10.0.0.1:8080", address(&first))
        .backend("10.0.0.2:8080", address(&second))
        .backend("10.0.0.3:8080", address(&backup))
        .run();
    // A stopped backend: no request fails.
    second.take();
    for _ in 0..20 {
        is(&trial, (HOST, "/name"), 200, "server 10.0.0.1\n");
    }
    // A backend that reports that it is not healthy.
    first.as_ref().expect("it runs").set_status(503);
    await_text(&trial, "server 10.0.0.3\n");
    first.as_ref().expect("it runs").set_status(200);
    await_text(&trial, "server 10.0.0.1\n");
}

#[test]
fn canary_release() {
    let (stable, canary) = (Origin::start("stable\n"), Origin::start("canary\n"));
    let trial = Recipe::new("canary")
        .backend("127.0.0.1:3001", stable.address())
        .backend("127.0.0.1:3002", canary.address())
        .run();
    assert_eq!((stable.requests(), canary.requests()), (95, 105), "{}", trial.server().log());
}

#[test]
fn rate_limit() {
    let trial = Recipe::new("rate-limit").file("srv/www/login", "in\n").run();
    let response = trial.get(HOST, "/login");
    assert_eq!(response.status, 429);
    let wait = response.field("Retry-After").and_then(|seconds| seconds.parse::<u32>().ok());
    assert!(wait.is_some_and(|wait| (1..=120).contains(&wait)), "{response:?}");
    let with_key = |key: &str| {
        let field = format!("X-Api-Key: {key}\r\n");
        trial.get_with(HOST, "/api/none", &field).status
    };
    let statuses: Vec<u16> = (0..101).map(|_| with_key("a")).collect();
    assert_eq!(statuses[..100], [404; 100], "a burst is as long as the rate");
    assert_eq!(with_key("b"), 404, "each key has a limit of its own");
}

#[test]
fn upload_limits() {
    let app = echo();
    let _trial = Recipe::new("upload-limits").backend("127.0.0.1:3000", app.address()).run();
    let seen = app.requests();
    let [upload] = &seen[..] else { panic!("{} requests passed", seen.len()) };
    assert_eq!((upload.target(), upload.body.len()), ("/upload/", 2_000_000));
}

#[test]
fn maintenance() {
    let recipe = Recipe::new("maintenance").file("srv/www/style.css", "body {}\n");
    // The recipe exempts an administrator's address; the test uses another loopback address for it.
    let trial = recipe.replace("192.0.2.7", "127.0.0.2").run();
    write_file(&trial.path("srv/www/maintenance.html"), "soon\n");
    let is_closed = || trial.get(HOST, "/").status == 503;
    assert!(wait_until(PATIENCE, is_closed), "{}", trial.server().log());
    is(&trial, (HOST, "/style.css"), 503, "soon\n");
    let repairing = trial.sh("curl -s --interface 127.0.0.2 http://www.example.org/");
    assert_eq!(repairing, "home\n");
}

#[test]
fn exact_paths() {
    let app = echo();
    let trial = Recipe::new("exact-paths").backend("127.0.0.1:9000", app.address()).run();
    for target in ["/bucket/a//b", "/@scope%2Fpackage", "/vhosts/%2F/queue", "/%70rivate/"] {
        is(&trial, ("s3.example.org", target), 200, &format!("GET {target}\n"));
    }
    // The page's table lists these paths after the default normalization.
    let app = Backend::replying(|seen| answer("200 OK", "", seen.target()));
    let server = lighty_testkit::lighty!().in_front_of(&app.name()).start();
    let normal = [
        ("/bucket/a//b", "/bucket/a/b"),
        ("/@scope%2Fpackage", "/@scope/package"),
        ("/vhosts/%2F/queue", "/vhosts/queue"),
    ];
    for (target, passed) in normal {
        assert_eq!(server.get(target).text(), passed);
    }
}

#[test]
fn zero_downtime() {
    let recipe = Recipe::new("zero-downtime").file("srv/releases/41/index.html", "41\n");
    let www = recipe.path("srv/www");
    std::fs::remove_dir_all(&www).expect("removed");
    std::os::unix::fs::symlink("releases/41", &www).expect("a link");
    let trial = recipe.file("srv/releases/42/index.html", "42\n").run();
    let file = trial.path("etc/lighty/lighty.conf");
    let text = std::fs::read_to_string(&file).expect("a configuration");
    let good = text.replace("server.max-keep-alive-idle = \"long\"\n", "");
    let (served, over) = (AtomicUsize::new(0), AtomicBool::new(false));
    std::thread::scope(|scope| {
        scope.spawn(|| {
            // Ends after a while, in case the test fails before it sets `over`.
            let start = Instant::now();
            while !over.load(Ordering::SeqCst) && start.elapsed() < 3 * PATIENCE {
                let response = trial.get(HOST, "/");
                assert_eq!(response.status, 200, "{response:?}");
                served.fetch_add(1, Ordering::SeqCst);
            }
        });
        for release in 100..105 {
            let (before, release) = (served.load(Ordering::SeqCst), release.to_string());
            write_file(&file, good.replace("\"42\"", &format!("\"{release}\"")));
            trial.sh("lighty reload --pid-file /run/lighty/lighty.pid");
            let response = trial.get(HOST, "/");
            assert_eq!(response.field("X-Release"), Some(&*release), "{}", trial.server().log());
            wait_until(PATIENCE, || served.load(Ordering::SeqCst) > before);
        }
        let command = "ln -sfn /srv/releases/42 /srv/next && mv -T /srv/next /srv/www";
        assert_eq!(trial.sh(command), "");
        let is_new = wait_until(PATIENCE, || trial.get(HOST, "/").text() == "42\n");
        over.store(true, Ordering::SeqCst);
        assert!(is_new, "{}", trial.server().log());
    });
}
