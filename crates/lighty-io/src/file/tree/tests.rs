use std::ffi::OsStr;
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use super::super::resolve::{self, Follow, How};
use super::*;

struct TestTree {
    directory: tempfile::TempDir,
    tree: Tree,
}

impl TestTree {
    fn new() -> Self {
        Self::with(false)
    }

    /// `plain`: behave as on kernels without `openat2`.
    fn with(plain: bool) -> Self {
        let directory = tempfile::tempdir().expect("a directory");
        let (dir, _) =
            resolve::open_directory(directory.path().as_os_str().as_encoded_bytes(), false)
                .expect("it is there");
        let how =
            How { follow: Follow::Beneath, noatime: false, no_xdev: false, cached: false, plain };
        let tree = Tree::new(dir, directory.path(), how);
        Self { directory, tree }
    }

    fn path(&self, path: &str) -> std::path::PathBuf {
        self.directory.path().join(path)
    }

    fn write(&self, path: &str, content: &str) {
        if let Some(parent) = self.path(path).parent() {
            fs::create_dir_all(parent).expect("directories");
        }
        fs::write(self.path(path), content).expect("a file");
    }

    fn read(&self, path: &str) -> String {
        fs::read_to_string(self.path(path)).expect(path)
    }

    fn names(&self) -> Vec<String> {
        names(self.directory.path())
    }

    fn copy(&self, from: &str, to: &str, how: (Replace, Reach)) -> io::Result<Vec<EntryFailure>> {
        let to = (&self.tree, to.as_bytes());
        self.tree.copy_to(from.as_bytes(), to, how, &Cancel::default())
    }

    fn mv(&self, from: &str, to: &str, replace: Replace) -> io::Result<Vec<EntryFailure>> {
        let to = (&self.tree, to.as_bytes());
        self.tree.move_to(from.as_bytes(), to, replace, &Cancel::default())
    }
}

fn names(directory: &Path) -> Vec<String> {
    let entries = fs::read_dir(directory).expect("a directory");
    let mut names: Vec<_> = entries
        .map(|entry| entry.expect("an entry").file_name().to_string_lossy().into_owned())
        .collect();
    names.sort();
    names
}

fn kind<T>(result: io::Result<T>) -> io::ErrorKind {
    result.err().expect("an error").kind()
}

#[test]
fn an_upload_has_its_name_when_it_is_whole() {
    let place = TestTree::new();
    place.write("a", "before");
    let mut upload = Upload::begin(&place.tree, b"a").expect("begun");
    upload.append(b"one ").expect("written");
    upload.append(b"two").expect("written");
    assert_eq!(place.read("a"), "before");
    assert_eq!(place.names(), ["a"]);
    let meta = upload.commit(Expected::Anything).expect("whole");
    assert_eq!((meta.size, place.read("a").as_str()), (7, "one two"));
    let mut dropped = Upload::begin(&place.tree, b"b").expect("begun");
    dropped.append(b"half").expect("written");
    drop(dropped);
    assert_eq!(place.names(), ["a"]);
}

#[test]
fn an_upload_replaces_what_is_expected_and_nothing_else() {
    let place = TestTree::new();
    place.write("a", "before");
    place.write("d/x", "");
    let begin = |name: &str| Upload::begin(&place.tree, name.as_bytes()).expect("begun");
    assert_eq!(kind(begin("a").commit(Expected::Nothing)), io::ErrorKind::AlreadyExists);
    begin("new").commit(Expected::Nothing).expect("new");
    let meta = place.tree.look(b"a").expect("it is there");
    let upload = begin("a");
    place.write("a", "changed meanwhile");
    assert_eq!(kind(upload.commit(Expected::Unchanged(meta))), io::ErrorKind::AlreadyExists);
    assert_eq!(place.read("a"), "changed meanwhile");
    let meta = place.tree.look(b"a").expect("it is there");
    begin("a").commit(Expected::Unchanged(meta)).expect("as it was");
    assert_eq!(kind(begin("d").commit(Expected::Anything)), io::ErrorKind::IsADirectory);
    assert_eq!(kind(Upload::begin(&place.tree, b"none/a").map(drop)), io::ErrorKind::NotFound);
    assert_eq!(place.names(), ["a", "d", "new"]);
}

#[test]
fn parts_go_on_where_the_file_is() {
    let place = TestTree::new();
    place.write("a", "0123456789");
    let mut upload = Upload::begin(&place.tree, b"a").expect("begun");
    upload.continue_at(4, &Cancel::default()).expect("within");
    upload.append(b"xx").expect("written");
    upload.commit(Expected::Anything).expect("whole");
    assert_eq!(place.read("a"), "0123xx6789");
    let mut upload = Upload::begin(&place.tree, b"a").expect("begun");
    assert_eq!(kind(upload.continue_at(11, &Cancel::default())), io::ErrorKind::InvalidInput);
    assert_eq!(
        kind(Upload::begin(&place.tree, b"b").expect("begun").continue_at(1, &Cancel::default())),
        io::ErrorKind::NotFound
    );
}

#[test]
fn modes_stay_and_special_bits_do_not() {
    use std::os::unix::fs::PermissionsExt;
    let place = TestTree::new();
    place.write("a", "x");
    fs::set_permissions(place.path("a"), fs::Permissions::from_mode(0o4711)).expect("a mode");
    let upload = Upload::begin(&place.tree, b"a").expect("begun");
    upload.commit(Expected::Anything).expect("whole");
    let mode =
        |name: &str| fs::metadata(place.path(name)).expect(name).permissions().mode() & 0o7777;
    assert_eq!(mode("a"), 0o711);
    place.copy("a", "b", (Replace::No, Reach::All)).expect("copied");
    assert_eq!(mode("b"), 0o711);
}

#[test]
fn nothing_outside_is_touched() {
    for plain in [false, true] {
        let outside = tempfile::tempdir().expect("a directory");
        fs::write(outside.path().join("secret"), "s").expect("a file");
        let place = TestTree::with(plain);
        std::os::unix::fs::symlink(outside.path(), place.path("out")).expect("a link");
        std::os::unix::fs::symlink("../..", place.path("up")).expect("a link");
        std::os::unix::fs::symlink(outside.path().join("secret"), place.path("file"))
            .expect("a link");
        place.write("d/in", "x");
        let tree = &place.tree;
        for path in ["out/secret", "up/x", "out/new"] {
            assert!(tree.look(path.as_bytes()).is_err(), "{path}");
            assert!(Upload::begin(tree, path.as_bytes()).is_err(), "{path}");
            assert!(tree.make_dir(path.as_bytes()).is_err(), "{path}");
            assert!(tree.remove_all(path.as_bytes(), &Cancel::default()).is_err(), "{path}");
            assert!(place.mv("d", path, Replace::Yes).is_err(), "{path}");
            assert!(place.copy("d", path, (Replace::Yes, Reach::All)).is_err(), "{path}");
        }
        for path in ["", ".", "d/..", "d/."] {
            assert!(tree.remove_all(path.as_bytes(), &Cancel::default()).is_err(), "{path:?}");
        }
        assert_eq!(
            kind(place.copy("file", "f", (Replace::No, Reach::All))),
            io::ErrorKind::PermissionDenied
        );
        // Links are removed, their targets stay.
        std::os::unix::fs::symlink(outside.path(), place.path("d/out")).expect("a link");
        assert!(tree.remove_all(b"d", &Cancel::default()).expect("removed").is_empty());
        assert_eq!(names(outside.path()), ["secret"]);
        assert_eq!(place.names(), ["file", "out", "up"]);
    }
}

#[test]
fn trees_are_copied_as_a_whole() {
    let place = TestTree::new();
    place.write("t/a", "A");
    place.write("t/s/b", "B");
    place.write("old/x", "X");
    std::os::unix::fs::symlink("a", place.path("t/link")).expect("a link");
    let all = (Replace::No, Reach::All);
    assert!(place.copy("t", "c", all).expect("copied").is_empty());
    assert_eq!((place.read("c/a"), place.read("c/s/b")), ("A".into(), "B".into()));
    assert_eq!(names(&place.path("c")), ["a", "s"]);
    assert_eq!(kind(place.copy("t", "old", all)), io::ErrorKind::AlreadyExists);
    assert_eq!(names(&place.path("old")), ["x"]);
    place.copy("t", "old", (Replace::Yes, Reach::All)).expect("replaced");
    assert_eq!(names(&place.path("old")), ["a", "s"]);
    place.copy("t", "shallow", (Replace::No, Reach::Itself)).expect("copied");
    assert!(names(&place.path("shallow")).is_empty());
    place.copy("t/a", "shallow", (Replace::Yes, Reach::All)).expect("a file for a directory");
    assert_eq!(place.read("shallow"), "A");
    place.copy("t", "shallow", (Replace::Yes, Reach::All)).expect("a directory for a file");
    assert_eq!(place.names(), ["c", "old", "shallow", "t"]);
}

#[test]
fn cancelled_copy_and_removal_change_nothing() {
    let place = TestTree::new();
    place.write("t/a", "A");
    place.write("old/x", "X");
    let cancel = Cancel::default();
    cancel.cancel();
    let how = (Replace::Yes, Reach::All);
    let copied = place.tree.copy_to(b"t", (&place.tree, b"old"), how, &cancel);
    assert_eq!(kind(copied), io::ErrorKind::Interrupted);
    assert_eq!(names(&place.path("old")), ["x"]);
    let failures = place.tree.remove_all(b"t", &cancel).expect("begun");
    assert_eq!(failures[0].error.kind(), io::ErrorKind::Interrupted);
    assert_eq!(place.names(), ["old", "t"]);
}

#[test]
fn a_move_replaces_whatever_is_there() {
    let place = TestTree::new();
    place.write("d/a", "A");
    place.write("e/b", "B");
    place.write("f", "F");
    assert_eq!(kind(place.mv("f", "d", Replace::No)), io::ErrorKind::AlreadyExists);
    place.mv("d", "e", Replace::Yes).expect("moved");
    assert_eq!(names(&place.path("e")), ["a"]);
    place.mv("f", "e", Replace::Yes).expect("moved");
    assert_eq!((place.read("e"), place.names()), ("F".into(), vec!["e".to_owned()]));
    place.write("g/x", "X");
    place.mv("g", "e", Replace::Yes).expect("moved");
    assert_eq!(place.names(), ["e"]);
    assert_eq!(kind(place.mv("none", "e", Replace::Yes)), io::ErrorKind::NotFound);
    assert_eq!(kind(place.mv("e", "none/e", Replace::Yes)), io::ErrorKind::NotFound);
}

#[test]
fn source_and_destination_may_not_overlap_by_any_name() {
    for plain in [false, true] {
        let place = TestTree::with(plain);
        place.write("col/f", "F");
        place.write("col/sub/g", "G");
        std::os::unix::fs::symlink("col", place.path("link")).expect("a link");
        let busy = io::ErrorKind::ResourceBusy;
        let all = (Replace::Yes, Reach::All);
        for (from, to) in [
            ("link/f", "col/f"),
            ("link/sub", "col/sub"),
            ("link/sub", "col"),
            ("link/f", "col"),
            ("col", "link/sub/x"),
            ("col", "link/x"),
        ] {
            assert_eq!(kind(place.mv(from, to, Replace::Yes)), busy, "move {from} to {to}");
            assert_eq!(kind(place.copy(from, to, all)), busy, "copy {from} to {to}");
        }
        assert_eq!((place.read("col/f"), place.read("col/sub/g")), ("F".into(), "G".into()));
        assert_eq!(names(&place.path("col")), ["f", "sub"]);
        place.mv("link/f", "link/h", Replace::Yes).expect("another name");
        place.copy("link/sub", "col/sub2", all).expect("beside it");
        assert_eq!(names(&place.path("col")), ["h", "sub", "sub2"]);
    }
}

#[test]
fn of_many_who_expect_the_same_file_one_replaces_it() {
    let place = TestTree::new();
    place.write("a", "0");
    for round in 1..=20 {
        let before = place.tree.look(b"a").expect("it is there");
        let begun = |number: usize| {
            let mut upload = Upload::begin(&place.tree, b"a").expect("begun");
            upload.append(&vec![b'x'; round * 10 + number]).expect("written");
            upload
        };
        let uploads: Vec<_> = (0..8).map(begun).collect();
        let line = std::sync::Barrier::new(uploads.len());
        let winners = std::thread::scope(|scope| {
            let commit = |upload: Upload| {
                let line = &line;
                scope.spawn(move || {
                    line.wait();
                    upload.commit(Expected::Unchanged(before)).is_ok()
                })
            };
            let threads: Vec<_> = uploads.into_iter().map(commit).collect();
            threads.into_iter().filter_map(|one| one.join().ok()).filter(|won| *won).count()
        });
        assert_eq!(winners, 1);
    }
}

#[test]
fn depth_has_a_limit() {
    let place = TestTree::new();
    let nested = |top: &str, depth: usize| format!("{top}{}", "/d".repeat(depth - 1));
    fs::create_dir_all(place.path(&nested("n", TREE_DEPTH_MAX))).expect("directories");
    fs::create_dir_all(place.path(&nested("m", TREE_DEPTH_MAX + 1))).expect("directories");
    let all = (Replace::No, Reach::All);
    assert!(place.copy("n", "n2", all).expect("copied").is_empty());
    assert!(place.path(&nested("n2", TREE_DEPTH_MAX)).exists());
    let failures = place.copy("m", "m2", all).expect("but for one");
    assert_eq!(failures.len(), 1);
    assert_eq!(failures[0].path.len(), 2 * TREE_DEPTH_MAX - 1);
    assert!(place.tree.remove_all(b"n", &Cancel::default()).expect("removed").is_empty());
    let failures = place.tree.remove_all(b"m", &Cancel::default()).expect("but for one");
    assert_eq!(failures.len(), 1, "{failures:?}");
    assert!(!place.path("n").exists() && place.path("m").exists());
}

#[test]
fn staged_entries_without_a_holder_are_swept() {
    let place = TestTree::new();
    place.write("s/.lighty-dav-0/half", "x");
    place.write("s/.lighty-dav-1", "x");
    place.write("s/.lighty-dav-2", "held");
    place.write("s/.other", "x");
    let held = fs::File::open(place.path("s/.lighty-dav-2")).expect("a file");
    staging::claim(held.as_fd());
    let names_there: Vec<_> = names(&place.path("s")).into_iter().map(String::into_bytes).collect();
    place.tree.sweep(b"s", &names_there);
    assert_eq!(names(&place.path("s")), [".lighty-dav-2", ".other"]);
    drop(held);
    place.tree.sweep(b"s", &names_there);
    assert_eq!(names(&place.path("s")), [".other"]);
    place.write(".lighty-dav-3", "x");
    place.tree.sweep(b"", &[b".lighty-dav-3".to_vec()]);
    assert_eq!(place.names(), ["s"]);
}

#[test]
fn a_place_has_one_name_whatever_the_way_to_it() {
    for plain in [false, true] {
        let place = TestTree::with(plain);
        place.write("col/sub/f", "F");
        std::os::unix::fs::symlink("col", place.path("link")).expect("a link");
        std::os::unix::fs::symlink("../link/sub", place.path("col/deep")).expect("a link");
        let root = place.directory.path().canonicalize().expect("a path");
        let path = |rel: &str| root.join(rel).into_os_string().into_encoded_bytes();
        let of = |rel: &str| {
            let found = place.tree.whereabouts(rel.as_bytes()).expect(rel);
            (found.path, found.links)
        };
        assert_eq!(of("col/sub/f"), (path("col/sub/f"), vec![]));
        assert_eq!(of("link/sub/f"), (path("col/sub/f"), vec![path("link")]));
        assert_eq!(of("link/deep/f"), (path("col/sub/f"), vec![path("link"), path("col/deep")]));
        assert_eq!(of("link"), (path("link"), vec![]), "the link itself");
        assert_eq!(of("link/new/er"), (path("col/new/er"), vec![path("link")]));
        assert_eq!(of("col/sub/f/x"), (path("col/sub/f/x"), vec![]));
        let through = place.tree.whereabouts_through(b"link/deep").expect("a directory");
        assert_eq!(through.path, path("col/sub"));
        assert_eq!(through.links, [path("link"), path("col/deep")]);
        assert_eq!(canonical(&path("link/deep/new")), path("col/sub/new"));
        assert_eq!(canonical(&path("none/such")), path("none/such"));
        assert_eq!(canonical_through(&path("link/deep/new")), path("col/sub/new"));
        let whole = place.tree.whereabouts(b"").expect("the root");
        assert_eq!(whole.path, root.as_os_str().as_encoded_bytes());
    }
}

#[test]
fn a_survey_sees_each_member_once_and_enters_what_is_selected() {
    let place = TestTree::new();
    for path in ["t/a", "t/s/b", "t/s/d/c", "t/closed/x", "t/.lighty-dav-00/y"] {
        place.write(path, "x");
    }
    std::os::unix::fs::symlink("s", place.path("t/link")).expect("a link");
    for most in [1, 2, 100] {
        let mut survey = Survey::begin(&place.tree, b"t", Extent::Tree).expect("a directory");
        let (mut seen, mut enter) = (Vec::new(), true);
        loop {
            if enter {
                survey.enter().expect("a directory");
            }
            let batch = survey.next_batch(most).expect("members");
            let Some(last) = batch.last() else { break };
            assert!(batch.len() <= most);
            enter = last.path != b"closed";
            let text = |member: &Member| String::from_utf8_lossy(&member.path).into_owned();
            seen.extend(batch.iter().map(text));
        }
        seen.sort();
        assert_eq!(seen, ["a", "closed", "link", "s", "s/b", "s/d", "s/d/c"]);
        let mut survey = Survey::begin(&place.tree, b"t", Extent::Members).expect("a directory");
        let mut count = 0;
        while let Some(seen) = survey.next_batch(most).ok().filter(|seen| !seen.is_empty()) {
            assert!(seen.len() == most || most == 100);
            count += seen.len();
            survey.enter().expect("nothing to enter");
        }
        assert_eq!(count, 4);
    }
}

#[test]
fn a_path_may_be_followed_to_the_end_of_its_links() {
    let place = TestTree::new();
    place.write("col/file", "F");
    let root = place.directory.path().canonicalize().expect("a path");
    let path = |rel: &str| root.join(rel).into_os_string().into_encoded_bytes();
    let link = |name: &str, target: &[u8]| {
        std::os::unix::fs::symlink(OsStr::from_bytes(target), place.path(name)).expect("a link");
    };
    link("first", b"col/second");
    link("col/second", b"../third");
    link("third", &path("col/file"));
    link("dangling", b"col/none");
    link("circle", b"circle");
    assert_eq!(canonical_through(&path("first")), path("col/file"));
    assert_eq!(canonical_through(&path("dangling")), path("col/none"));
    assert_eq!(canonical_through(&path("circle")), path("circle"));
    assert_eq!(canonical_through(&path("none/such")), path("none/such"));
    assert_eq!(canonical(&path("first")), path("first"));
}

#[test]
fn a_file_takes_the_place_of_a_directory_in_one_step() {
    let place = TestTree::new();
    place.write("f", "new");
    place.write("d", "old");
    let name = place.path("d");
    let over = std::sync::atomic::AtomicBool::new(false);
    let missed = std::thread::scope(|scope| {
        let watch = scope.spawn(|| {
            let mut missed = 0;
            while !over.load(Ordering::Relaxed) {
                missed += u32::from(name.symlink_metadata().is_err());
            }
            missed
        });
        for _ in 0..20 {
            let how = (Replace::Yes, Reach::All);
            place.write("other/old", "old");
            let moved =
                place.tree.move_to(b"other", (&place.tree, b"d"), how.0, &Cancel::default());
            assert!(moved.expect("moved").is_empty());
            assert_eq!(place.read("d/old"), "old");
            let copied = place.tree.copy_to(b"f", (&place.tree, b"d"), how, &Cancel::default());
            assert!(copied.expect("copied").is_empty());
            assert_eq!(place.read("d"), "new");
        }
        over.store(true, Ordering::Relaxed);
        watch.join().expect("counted")
    });
    assert_eq!(missed, 0, "the name was free meanwhile");
    let names = fs::read_dir(place.directory.path()).expect("a directory").count();
    assert_eq!(names, 2, "nothing is left over");
}
