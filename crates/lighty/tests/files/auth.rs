//! Authentication: password files made by Apache's tools, and third-party clients.

use std::process::Command;
use std::time::{Duration, Instant};

use lighty_testkit::client::Client;
use lighty_testkit::lighty;
use lighty_testkit::response::Response;
use lighty_testkit::server::Server;
use lighty_testkit::stopwatch::Stopwatch;

const RULE: &str = "\"realm\" => \"the realm\", \"require\" => \"valid-user\"";

/// A server with a page behind `rule`, and a file of users.
fn server(backend: &str, users: &str, rule: &str) -> Server {
    lighty!()
        .file("private/a", "secret page")
        .file("a", "page")
        .file("../users", users)
        .config(&format!(
            "auth.backend = \"{backend}\"
             auth.backend.{backend}.userfile = \"@DIR@/users\"
             auth.require = ( \"/private\" => ( {rule} ) )"
        ))
        .start()
}

/// Sends a request with `curl -u name:password`; returns the status and the output.
fn curl(server: &Server, arguments: &[&str], path: &str) -> (String, String) {
    let output = Command::new("curl")
        .args(["-sS", "--max-time", "20", "-o", "-", "-w", "\n%{http_code}"])
        .args(arguments)
        .arg(format!("http://{}{path}", server.address()))
        .output()
        .expect("curl runs");
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let (body, status) = text.rsplit_once('\n').unwrap_or_default();
    (status.to_owned(), body.to_owned())
}

fn status(server: &Server, arguments: &[&str]) -> String {
    curl(server, arguments, "/private/a").0
}

fn made_by(tool: &str, arguments: &[&str]) -> String {
    let output = Command::new(tool).args(arguments).output().expect("a tool of Apache's");
    assert!(output.status.success(), "{output:?}");
    String::from_utf8(output.stdout).expect("text")
}

/// Base64 of `kim:secret`, and of a wrong password.
const KIM: &str = "Authorization: Basic a2ltOnNlY3JldA==\r\n";
const WRONG: &str = "Authorization: Basic a2ltOndyb25n\r\n";

fn challenges(answer: &Response) -> Vec<&str> {
    answer.all("WWW-Authenticate").collect()
}

#[test]
fn every_hash_of_htpasswd_is_understood() {
    let kinds = ["-m", "-s", "-B", "-2", "-5", "-d"];
    let mut users = String::new();
    for kind in kinds {
        users += &made_by("htpasswd", &["-nb", kind, &format!("user{kind}"), "pass:wörd"]);
    }
    // Made with `mkpasswd -m yescrypt` and `mkpasswd -m scrypt`.
    users += "new:$y$j9T$abcdefgh12345678$5sAznj4WEIGgyua2AXu2NRSCMeWB3V6LpE45tV7hHM8\n\
              scrypt:$7$BU..../....abcdefgh$XUA8Nj3bxww49WLzTVmSlhXuWalkW4GrVGNFh8BRMuA\n";
    users += "plain:secret\n# a comment\nbroken\n";
    let server = server("htpasswd", &users, &format!("\"method\" => \"basic\", {RULE}"));
    for kind in kinds {
        let user = format!("user{kind}:pass:wörd");
        let (status, body) = curl(&server, &["-u", &user], "/private/a");
        assert_eq!((&*status, &*body), ("200", "secret page"), "{kind}: {}", server.log());
    }
    assert_eq!(status(&server, &["-u", "new:secret"]), "200");
    assert_eq!(status(&server, &["-u", "scrypt:secret"]), "200");
    assert_eq!(status(&server, &["-u", "new:other"]), "401");
    server.await_log("plain text is refused");
    let log = server.log();
    assert!(log.contains("no colon") && log.contains("line "), "{log}");
    assert_eq!(log.matches("plain text is refused").count(), 1, "said once");
    assert_eq!(status(&server, &["-u", "plain:secret"]), "401");
    assert_eq!(server.get("/a").text(), "page");
}

#[test]
fn a_wrong_password_is_answered_late_and_a_missing_one_at_once() {
    let server = server("plain", "kim:secret\n", &format!("\"method\" => \"basic\", {RULE}"));
    let start = Stopwatch::start(&server);
    let answer = server.get("/private/a");
    assert_eq!(answer.status, 401);
    assert_eq!(challenges(&answer), ["Basic realm=\"the realm\", charset=\"UTF-8\""]);
    assert!(start.took() < Duration::from_millis(900), "{:?}", start.took());
    let start = Instant::now();
    assert_eq!(server.get_with("/private/a", WRONG).status, 401);
    assert!(start.elapsed() >= Duration::from_millis(900), "{:?}", start.elapsed());
    server.await_log("wrong credentials: user \"kim\"");
    assert_eq!(server.get_with("/private/a", KIM).text(), "secret page");
    for malformed in [
        "Authorization: Basic !!!\r\n".to_owned(),
        "Authorization: Basic a2lt\r\n".to_owned(),
        format!("{KIM}{KIM}"),
    ] {
        assert_eq!(server.get_with("/private/a", &malformed).status, 400, "{malformed}");
    }
}

#[test]
fn a_changed_file_counts() {
    let server = server("plain", "kim:other\n", &format!("\"method\" => \"basic\", {RULE}"));
    assert_eq!(server.get_with("/private/a", KIM).status, 401);
    let users = server.directory().join("users");
    std::fs::write(&users, "kim:secret\n").expect("written");
    let known = || server.get_with("/private/a", KIM).status == 200;
    assert!(lighty_testkit::wait_until(Duration::from_secs(30), known));
    std::fs::write(&users, "kim:another\n").expect("written");
    let unknown = || server.get_with("/private/a", KIM).status == 401;
    assert!(lighty_testkit::wait_until(Duration::from_secs(30), unknown), "the cache forgets");
    std::fs::remove_file(&users).expect("removed");
    let broken = || server.get_with("/private/a", KIM).status == 500;
    assert!(lighty_testkit::wait_until(Duration::from_secs(30), broken));
}

#[test]
fn digest_as_curl_speaks_it() {
    for algorithm in ["MD5", "SHA-256", "SHA-256|MD5"] {
        let rule = format!("\"method\" => \"digest\", \"algorithm\" => \"{algorithm}\", {RULE}");
        let server = server("plain", "kim:secret\n", &rule);
        let ask = |user: &str| curl(&server, &["--digest", "-u", user], "/private/a?a=b&c=%20d");
        assert_eq!(ask("kim:secret"), ("200".to_owned(), "secret page".to_owned()), "{algorithm}");
        assert_eq!(ask("kim:wrong").0, "401", "{algorithm}");
        assert_eq!(ask("lee:secret").0, "401", "{algorithm}");
        let offered = challenges(&server.get("/private/a")).len();
        assert_eq!(offered, algorithm.split('|').count());
    }
}

#[test]
fn digest_with_the_file_of_htdigest_and_basic_beside_it() {
    // htdigest prompts on a terminal, so the test builds the same line: MD5 of kim:the
    // realm:secret.
    let rule = format!("\"method\" => \"basic|digest\", {RULE}");
    let server = server("htdigest", "kim:the realm:2088fbd997fa86f151ca982b8f18bd5b\n", &rule);
    for way in ["--digest", "--basic", "--anyauth"] {
        assert_eq!(status(&server, &[way, "-u", "kim:secret"]), "200", "{way}: {}", server.log());
        assert_eq!(status(&server, &[way, "-u", "kim:no"]), "401", "{way}");
    }
    let answer = server.get("/private/a");
    let offered = challenges(&answer);
    assert!(offered[0].starts_with("Digest ") && offered[1].starts_with("Basic "), "{offered:?}");
}

#[test]
fn a_response_counts_once() {
    let rule = format!("\"method\" => \"digest\", {RULE}");
    let server = server("plain", "kim:secret\n", &rule);
    let verbose = Command::new("curl")
        .args(["-sv", "--digest", "-u", "kim:secret"])
        .arg(format!("http://{}/private/a", server.address()))
        .output()
        .expect("curl runs");
    let printed = String::from_utf8_lossy(&verbose.stderr).into_owned();
    let line = printed.lines().find_map(|line| line.strip_prefix("> Authorization: "));
    let line = format!("Authorization: {}\r\n", line.expect("curl says what it sent").trim_end());
    let answer = server.get_with("/private/a", &line);
    assert_eq!(answer.status, 401, "replayed");
    assert!(challenges(&answer)[0].contains("stale=true"), "{answer:?}");
    assert_eq!(server.get_with("/private/b", &line).status, 400, "made for another target");
    let bent = line.replace("response=\"", "response=\"0");
    let answer = server.get_with("/private/a", &bent);
    assert!(!challenges(&answer)[0].contains("stale"), "{answer:?}");
}

#[test]
fn groups_are_required_and_hosts_admit_no_user() {
    let setup = lighty!()
        .file("g/a", "G")
        .file("h/a", "H")
        .file("i/a", "I")
        .file("../users", "kim:secret\nlee:secret\n")
        .file("../groups", "staff: kim\n")
        .config(
            r#"
            auth.backend = "plain"
            auth.backend.plain.userfile = "@DIR@/users"
            auth.backend.plain.groupfile = "@DIR@/groups"
            auth.require = (
                "/g" => ( "method" => "basic", "realm" => "r", "require" => "group=staff" ),
                "/h" => ( "method" => "basic", "realm" => "r", "require" => "host=127.0.0.1|user=lee" ),
                "/i" => ( "method" => "basic", "realm" => "r", "require" => "host=127.0.0.1" )
            )
            "#,
        );
    let (_, _, reported) = setup.run(&["-tt", "-f", "@CONF@"]);
    assert!(reported.contains("\"host=127.0.0.1\", which admits no user"), "{reported}");
    let server = setup.start();
    let ask = |path: &str, user: &str| curl(&server, &["-u", user], path).0;
    assert_eq!((&*ask("/g/a", "kim:secret"), &*ask("/g/a", "lee:secret")), ("200", "401"));
    assert_eq!((&*ask("/h/a", "kim:secret"), &*ask("/h/a", "lee:secret")), ("401", "200"));
    assert_eq!((&*ask("/i/a", "kim:secret"), &*ask("/i/a", "lee:secret")), ("401", "401"));
}

#[test]
fn an_error_handler_keeps_the_challenge_and_restarts_ask_once() {
    let server = lighty!()
        .file("sorry.html", "sorry")
        .file("private/front", "front")
        .file("../users", "kim:secret\n")
        .config(&format!(
            "server.error-handler = \"/sorry.html\"
             url.rewrite-if-not-file = ( \"^/private/\" => \"/private/front\" )
             auth.backend = \"plain\"
             auth.backend.plain.userfile = \"@DIR@/users\"
             auth.require = ( \"/private\" => ( \"method\" => \"digest\", {RULE} ) )"
        ))
        .start();
    let answer = server.get("/private/none");
    assert_eq!((answer.status, answer.text()), (401, "sorry"));
    assert_eq!(challenges(&answer).len(), 1);
    let response = curl(&server, &["--digest", "-u", "kim:secret"], "/private/none");
    assert_eq!(response, ("200".to_owned(), "front".to_owned()));
}

#[test]
fn impossible_settings_are_reported() {
    let rule = format!("\"method\" => \"digest\", {RULE}");
    let server = server("htpasswd", "kim:{SHA}qUqP5cyxm6YcTAhz05Hph5gvu9M=\n", &rule);
    assert_eq!(status(&server, &["--digest", "-u", "kim:test"]), "500");
    server.await_log("cannot do digest");
    for (line, message) in [
        ("auth.backend = \"gssapi\"", "not available yet"),
        ("auth.require = ( \"/\" => ( \"method\" => \"basic\" ) )", "needs \"realm\""),
        ("auth.require = ( \"/\" => ( \"method\" => \"ntlm\" ) )", "\"basic\", \"digest\""),
    ] {
        let (code, _, printed) = lighty!().config(line).run(&["-t", "-f", "@CONF@"]);
        assert!(code != 0 && printed.contains(message), "{line}: {printed}");
    }
}

/// Server with users that have the password `secret`, hashed with bcrypt at cost 12.
/// `X-Forwarded-For` sets the client's address.
fn server_with_slow_hashes(lines: &str) -> Server {
    let hash = made_by("htpasswd", &["-nbBC", "12", "kim", "secret"]);
    let users = format!("{hash}{}{}", hash.replace("kim:", "lee:"), hash.replace("kim:", "ann:"));
    lighty!()
        .file("private/a", "secret page")
        .file("../users", users)
        .config(&format!(
            "extforward.forwarder = ( \"127.0.0.1\" => \"trust\" )
             auth.backend = \"htpasswd\"
             auth.backend.htpasswd.userfile = \"@DIR@/users\"
             auth.delay-invalid-creds = \"disable\"
             {lines}
             auth.require = ( \"/private\" => ( \"method\" => \"basic\", {RULE} ) )"
        ))
        .start()
}

#[test]
fn verified_password_is_not_hashed_again_until_it_expires() {
    for (lines, is_kept) in [("", true), ("auth.cache = ( \"max-age\" => 1 )", false)] {
        let server = server_with_slow_hashes(lines);
        let cost = |count: usize| {
            let before = server.cpu_time();
            for _ in 0..count {
                assert_eq!(server.get_with("/private/a", KIM).status, 200);
            }
            server.cpu_time() - before
        };
        let hashed = cost(1);
        // Waits until the server checks the file of users again for changes.
        std::thread::sleep(Duration::from_millis(1200));
        let again = cost(3);
        assert_eq!(again < hashed / 2, is_kept, "{hashed:?}, then {again:?}: {lines}");
    }
}

#[test]
fn a_guesser_delays_no_other_client() {
    let server = server_with_slow_hashes("auth.max-pending = 30");
    let ask = |credentials: &str, from: u8| {
        server.get_with("/private/a", &format!("{credentials}X-Forwarded-For: 192.0.2.{from}\r\n"))
    };
    assert_eq!(ask(KIM, 1).status, 200);
    let mut guesses: Vec<_> = (0..60).map(|_| server.connect()).collect();
    for guess in &mut guesses {
        let head = format!("GET /private/a HTTP/1.1\r\nHost: a\r\n{WRONG}");
        guess.send(format!("{head}X-Forwarded-For: 192.0.2.66\r\n\r\n"));
    }
    server.await_log("auth.max-pending");
    // A cached password does not queue, and a new client does not wait for all guesses of another
    // one.
    assert_eq!(ask(KIM, 1).status, 200);
    let lee = "Authorization: Basic bGVlOnNlY3JldA==\r\n";
    assert_eq!(ask(lee, 2).status, 200);
    let wrong = |log: &str| log.matches("wrong credentials").count();
    let hashed = wrong(&server.log());
    assert!(hashed <= 10, "{hashed} guesses came first");
    assert_eq!(ask(KIM, 66).status, 200, "from the same address");
    // A client that is gone leaves the queue. It resets the connection, because a FIN may be a
    // half-close.
    guesses.into_iter().for_each(Client::reset);
    let ann = "Authorization: Basic YW5uOnNlY3JldA==\r\n";
    assert_eq!(ask(ann, 66).status, 200);
    let hashed = wrong(&server.log());
    assert!(hashed <= 20, "{hashed} guesses were hashed");
}

#[test]
fn check_names_hashes_that_let_nobody_in() {
    let lines = [
        "good:$apr1$lZL6V/ci$eIMz/iKDkbtys/uU7LEK00",
        "large:$y$jCT$AbCdEfGhIjKlMnOp$0123456789abcdefghijklmnopqrstuvwxyzABCDEFG",
        "torn:$7$CU..../....2Q9obwLhin8qvQl6sisAO/$SN8fKCjLuR",
        "plain:secret",
        "old:rqXexS6ZhobKA",
        "new:$y$j9T$abcdefgh12345678$5sAznj4WEIGgyua2AXu2NRSCMeWB3V6LpE45tV7hHM8",
    ];
    let setup = lighty!()
        .config(
            "auth.backend = \"htpasswd\"\n\
             auth.backend.htpasswd.userfile = \"@DIR@/users\"",
        )
        .file("../users", lines.join("\n"));
    let (code, _, printed) = setup.run(&["-tt", "-f", "@CONF@"]);
    assert_eq!(code, 0, "{printed}");
    for line in ["line 2", "line 3", "line 4", "htpasswd -B"] {
        assert!(printed.contains(line), "{line}: {printed}");
    }
    for line in ["line 1", "line 5", "line 6"] {
        assert!(!printed.contains(line), "{line}: {printed}");
    }
    assert_eq!(setup.run(&["-tt", "--strict", "-f", "@CONF@"]).0, 1);
}
