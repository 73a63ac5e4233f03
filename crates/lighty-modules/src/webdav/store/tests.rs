use lighty_io::file::tree::CanonicalPath;

use super::*;

const NOW_S: i64 = 1_000;

fn open(directory: &tempfile::TempDir) -> Db {
    Db::open(&directory.path().join("dav.db")).expect("a database")
}

fn fresh() -> (tempfile::TempDir, Db) {
    let directory = tempfile::tempdir().expect("a directory");
    let db = open(&directory);
    (directory, db)
}

fn dead(name: &str, value: &str) -> Dead {
    let xml = format!("<x:{name} xmlns:x=\"urn:x\">{value}</x:{name}>");
    Dead { ns: "urn:x".into(), name: name.into(), xml }
}

fn set(db: &mut Db, path: &[u8], name: &str) {
    let changed =
        db.change(path, &[PropertyChange::Set(dead(name, "1"))], 1 << 20).expect("changed");
    assert_eq!(changed, Changed::All);
}

fn names(db: &Db, path: &[u8]) -> Vec<String> {
    db.properties(path).expect("properties").into_iter().map(|dead| dead.name).collect()
}

fn lock(token: &str, path: &[u8], infinite: bool, exclusive: bool) -> Lock {
    Lock {
        token: token.into(),
        path: path.to_vec(),
        url: path.to_vec(),
        infinite,
        exclusive,
        owner: String::new(),
        user: b"alice".to_vec(),
        expires_s: NOW_S + 10,
    }
}

fn take(db: &mut Db, lock: &Lock) -> Taken {
    db.take_lock(&new(lock.clone()), NOW_S, 100).expect("a response")
}

fn new(lock: Lock) -> NewLock {
    NewLock { lock, links: Vec::new() }
}

fn at(path: &[u8]) -> CanonicalPath {
    CanonicalPath { path: path.to_vec(), links: Vec::new() }
}

fn is_taken(taken: &Taken) -> bool {
    matches!(taken, Taken::Yes)
}

fn blocking(db: &Db, path: &[u8], tree: bool, tokens: &[&str], user: &str) -> Vec<String> {
    let claim = WriteClaim {
        paths: vec![Covered { canonical: at(path), tree }],
        tokens: tokens.iter().map(|token| (*token).to_owned()).collect(),
        user: user.as_bytes().to_vec(),
    };
    let locks = db.locks_against(&claim, NOW_S).expect("locks");
    locks.into_iter().map(|lock| lock.token).collect()
}

#[test]
fn changes_are_made_all_or_none() {
    let (_directory, mut db) = fresh();
    let path = b"/srv/a";
    let changes = [
        PropertyChange::Set(dead("a", "1")),
        PropertyChange::Set(dead("b", "1")),
        PropertyChange::Remove { ns: "urn:x".into(), name: "a".into() },
        PropertyChange::Remove { ns: "urn:x".into(), name: "never".into() },
        PropertyChange::Set(dead("b", "2")),
    ];
    assert_eq!(db.change(path, &changes, 1 << 20).expect("changed"), Changed::All);
    assert_eq!(db.properties(path).expect("one"), [dead("b", "2")]);
    let size = dead("b", "2").xml.len() + "urn:x".len() + "b".len();
    let same = [PropertyChange::Set(dead("b", "3"))];
    assert_eq!(db.change(path, &same, size - 1).expect("a response"), Changed::TooLarge);
    assert_eq!(db.properties(path).expect("as before"), [dead("b", "2")]);
    assert_eq!(db.change(path, &same, size).expect("changed"), Changed::All);
}

#[test]
fn properties_follow_moves_and_copies_also_with_names_that_are_no_text() {
    let (_directory, mut db) = fresh();
    let (odd, below) = (&b"/srv/\xFFd'\0"[..], &b"/srv/\xFFd'\0/\xFE"[..]);
    set(&mut db, odd, "own");
    set(&mut db, below, "below");
    set(&mut db, b"/srv/\xFFd'\0x", "neighbour");
    set(&mut db, b"/srv/to/old", "old");
    db.copied(odd, b"/srv/to", true).expect("copied");
    assert_eq!(names(&db, b"/srv/to"), ["own"]);
    assert_eq!(names(&db, b"/srv/to/\xFE"), ["below"]);
    assert!(names(&db, b"/srv/to/old").is_empty());
    db.copied(odd, b"/srv/shallow", false).expect("copied");
    assert!(names(&db, b"/srv/shallow/\xFE").is_empty());
    assert_eq!(names(&db, b"/srv/shallow"), ["own"]);
    db.moved(odd, b"/srv/m\xFD").expect("moved");
    assert_eq!(names(&db, b"/srv/m\xFD/\xFE"), ["below"]);
    assert!(names(&db, odd).is_empty() && names(&db, below).is_empty());
    assert_eq!(names(&db, b"/srv/\xFFd'\0x"), ["neighbour"]);
}

#[test]
fn a_move_that_was_cut_off_is_completed_or_forgotten() {
    let directory = tempfile::tempdir().expect("a directory");
    let path = |name: &str| directory.path().join(name).into_os_string().into_encoded_bytes();
    let (done, undone) = (path("done"), path("undone"));
    {
        let mut db = open(&directory);
        set(&mut db, &done, "a");
        set(&mut db, &undone, "b");
        db.moving(&done, &path("target")).expect("noted");
        db.moving(&undone, &path("nowhere")).expect("noted");
    }
    std::fs::write(directory.path().join("target"), "").expect("a file");
    std::fs::write(directory.path().join("undone"), "").expect("a file");
    for _ in 0..2 {
        let db = open(&directory);
        assert_eq!(names(&db, &path("target")), ["a"]);
        assert_eq!(names(&db, &undone), ["b"]);
        assert!(names(&db, &done).is_empty());
    }
}

#[test]
fn properties_and_locks_of_missing_files_are_forgotten() {
    let (_directory, mut db) = fresh();
    for path in [&b"/s/t"[..], b"/s/t/a", b"/s/t/b", b"/s/tt"] {
        set(&mut db, path, "p");
        assert!(is_taken(&take(&mut db, &lock(&String::from_utf8_lossy(path), path, false, true))));
    }
    db.forget_gone(b"/s/t", |path| path == b"/s/t/b").expect("forgotten");
    for (path, stays) in
        [(&b"/s/t"[..], false), (b"/s/t/a", false), (b"/s/t/b", true), (b"/s/tt", true)]
    {
        assert_eq!(!names(&db, path).is_empty(), stays);
        assert_eq!(!db.locks_on(path, NOW_S).expect("locks").is_empty(), stays);
    }
}

#[test]
fn locks_go_together_or_not() {
    let (_directory, mut db) = fresh();
    assert!(is_taken(&take(&mut db, &lock("1", b"/s/t/a", false, false))));
    assert!(is_taken(&take(&mut db, &lock("2", b"/s/t/a", false, false))));
    assert!(!is_taken(&take(&mut db, &lock("3", b"/s/t/a", false, true))));
    assert!(
        !is_taken(&take(&mut db, &lock("4", b"/s/t", true, true))),
        "it would cover the others"
    );
    assert!(is_taken(&take(&mut db, &lock("5", b"/s/t", true, false))));
    assert!(!is_taken(&take(&mut db, &lock("6", b"/s/t/new/b", false, true))), "covered by 5");
    assert!(is_taken(&take(&mut db, &lock("7", b"/s", false, true))), "covers nothing else");
    assert!(is_taken(&take(&mut db, &lock("8", b"/s/tt", true, true))), "another name");
    match take(&mut db, &lock("9", b"/s/t/a", true, true)) {
        Taken::Conflict(others) => {
            let mut tokens: Vec<_> = others.into_iter().map(|lock| lock.token).collect();
            tokens.sort();
            assert_eq!(tokens, ["1", "2", "5"]);
        }
        other => panic!("{other:?}"),
    }
}

#[test]
fn locks_end_and_are_counted() {
    let (_directory, mut db) = fresh();
    for number in 0..2 {
        let path = format!("/s/{number}");
        let taken = db.take_lock(&new(lock(&path, path.as_bytes(), false, true)), NOW_S, 2);
        assert!(is_taken(&taken.expect("a response")));
    }
    let third = new(lock("third", b"/s/third", false, true));
    assert!(matches!(db.take_lock(&third, NOW_S + 9, 2), Ok(Taken::TooMany)));
    assert!(matches!(db.take_lock(&third, NOW_S + 10, 2), Ok(Taken::Yes)), "the others have ended");
    let refreshed =
        db.refresh_lock(&at(b"/s/third"), &["third".into()], b"alice", (NOW_S, NOW_S + 99));
    assert!(matches!(refreshed, Ok(Refresh::Done(lock)) if lock.expires_s == NOW_S + 99));
    let of = |db: &mut Db, token: &str, user: &[u8]| {
        db.refresh_lock(&at(b"/s/third"), &[token.into()], user, (NOW_S, NOW_S + 99))
            .expect("a response")
    };
    assert!(matches!(of(&mut db, "third", b"bob"), Refresh::NotYours));
    assert!(matches!(of(&mut db, "other", b"alice"), Refresh::Unknown));
    assert!(matches!(db.unlock(&at(b"/s/third"), "third", b"bob", NOW_S), Ok(Refresh::NotYours)));
    assert!(matches!(db.unlock(&at(b"/s/else"), "third", b"alice", NOW_S), Ok(Refresh::Unknown)));
    assert!(matches!(db.unlock(&at(b"/s/third"), "third", b"alice", NOW_S), Ok(Refresh::Done(_))));
}

#[test]
fn writers_need_the_tokens_of_what_they_change() {
    let (_directory, mut db) = fresh();
    assert!(blocking(&db, b"/s/t", true, &[], "bob").is_empty());
    assert!(is_taken(&take(&mut db, &lock("tree", b"/s/t", true, false))));
    assert!(is_taken(&take(&mut db, &lock("leaf", b"/s/t/a/b", false, false))));
    assert_eq!(blocking(&db, b"/s/t/x", false, &[], "alice"), ["tree"]);
    assert_eq!(blocking(&db, b"/s/t/x", false, &["leaf"], "alice"), ["tree"]);
    assert!(blocking(&db, b"/s/t/x", false, &["tree"], "alice").is_empty());
    assert_eq!(blocking(&db, b"/s/t/x", false, &["tree"], "bob"), ["tree"], "not his");
    assert!(blocking(&db, b"/s/t/a/b", false, &["leaf"], "alice").is_empty(), "one is enough");
    assert_eq!(blocking(&db, b"/s/t", true, &["tree"], "alice"), ["leaf"]);
    assert!(blocking(&db, b"/s/t", true, &["tree", "leaf"], "alice").is_empty());
    assert!(blocking(&db, b"/s", false, &[], "bob").is_empty());
    assert_eq!(blocking(&db, b"/s", true, &[], "bob").len(), 2);
}

#[tokio::test]
async fn writer_keeps_others_from_locking() {
    let directory = tempfile::tempdir().expect("a directory");
    let path = directory.path().join("dav.db");
    let store = Stores::new(|_| {}).at(path.to_str().expect("UTF-8")).expect("a store");
    let claim = WriteClaim {
        paths: vec![Covered { canonical: at(b"/s/t"), tree: true }],
        tokens: Vec::new(),
        user: Vec::new(),
    };
    let writing = store.begin_writing(claim, NOW_S).await.expect("a response").ok();
    let take = async |path: &[u8], infinite| {
        store.take_lock(new(lock("x", path, infinite, true)), NOW_S, 9).await.expect("a response")
    };
    assert!(matches!(take(b"/s/t", false).await, Taken::Busy));
    assert!(matches!(take(b"/s/t/below", false).await, Taken::Busy));
    assert!(matches!(take(b"/s", true).await, Taken::Busy));
    assert!(matches!(take(b"/s/tt", false).await, Taken::Yes));
    drop(writing.expect("nothing was locked"));
    let again = store.take_lock(new(lock("y", b"/s/t", true, true)), NOW_S, 9).await;
    assert!(matches!(again, Ok(Taken::Yes)));
}

#[test]
fn locks_of_a_tree_cover_what_links_lead_to() {
    let (_directory, mut db) = fresh();
    assert!(is_taken(&take(&mut db, &lock("tree", b"/s/t", true, true))));
    let linked = CanonicalPath { path: b"/s/col/f".to_vec(), links: vec![b"/s/t/l".to_vec()] };
    let tokens = |locks: Vec<Lock>| locks.into_iter().map(|lock| lock.token).collect::<Vec<_>>();
    assert_eq!(tokens(db.locks_at(&linked, NOW_S).expect("locks")), ["tree"]);
    assert!(db.locks_at(&at(b"/s/col/f"), NOW_S).expect("locks").is_empty());
    let one = lock("one", b"/s/col/f", false, true);
    let through = NewLock { lock: one.clone(), links: linked.links.clone() };
    assert!(matches!(db.take_lock(&through, NOW_S, 9), Ok(Taken::Conflict(_))));
    assert!(is_taken(&take(&mut db, &one)));
    let mut claim = WriteClaim {
        paths: vec![Covered { canonical: linked, tree: false }],
        tokens: vec!["one".into()],
        user: b"alice".to_vec(),
    };
    assert_eq!(tokens(db.locks_against(&claim, NOW_S).expect("locks")), ["tree"], "both count");
    claim.tokens.push("tree".into());
    assert!(db.locks_against(&claim, NOW_S).expect("locks").is_empty());
}

#[test]
fn a_database_of_the_first_form_is_respelled_once() {
    let directory = tempfile::tempdir().expect("a directory");
    let root = directory.path().canonicalize().expect("a path");
    let path = |name: &str| root.join(name).into_os_string().into_encoded_bytes();
    std::fs::create_dir(root.join("col")).expect("a directory");
    std::os::unix::fs::symlink("col", root.join("link")).expect("a link");
    {
        let mut db = open(&directory);
        set(&mut db, &path("link/a"), "kept");
        set(&mut db, &path("link/b"), "both");
        set(&mut db, &path("col/b"), "both");
        set(&mut db, &path("none/c"), "nowhere");
        assert!(is_taken(&take(&mut db, &lock("first", &path("col/a"), false, true))));
        assert!(is_taken(&take(&mut db, &lock("second", &path("link/a"), false, true))));
        assert!(is_taken(&take(&mut db, &lock("third", &path("link/b"), false, true))));
        db.connection.execute("DROP TABLE lighty_form", []).expect("as it was");
    }
    for _ in 0..2 {
        let db = open(&directory);
        assert_eq!(names(&db, &path("col/a")), ["kept"]);
        assert_eq!(names(&db, &path("col/b")), ["both"]);
        assert_eq!(names(&db, &path("none/c")), ["nowhere"]);
        assert!(names(&db, &path("link/a")).is_empty() && names(&db, &path("link/b")).is_empty());
        let of = |name: &str| db.locks_on(&path(name), NOW_S).expect("locks");
        assert_eq!((of("col/a").len(), &*of("col/a")[0].token), (1, "first"));
        assert_eq!(&*of("col/b")[0].token, "third");
        assert!(of("link/a").is_empty());
    }
    let db = open(&directory);
    db.connection.execute("UPDATE lighty_form SET form = 3", []).expect("of the future");
    let Err(error) = Db::open(&directory.path().join("dav.db")) else { panic!("it was opened") };
    assert!(error.to_string().contains("form 3"), "{error}");
}
