use std::os::unix::fs::MetadataExt;

use super::*;

fn socket(path: &Path) -> ProgramSocket {
    ProgramSocket {
        address: BindSpec::Unix(path.to_path_buf()),
        backlog: 16,
        mode: None,
        uid: None,
        gid: None,
    }
}

#[test]
fn a_unix_socket_has_the_mode_that_was_asked_for() {
    let directory = tempfile::tempdir().expect("a directory");
    let path = directory.path().join("s");
    let wanted = ProgramSocket { mode: Some(0o604), ..socket(&path) };
    drop(wanted.listen().expect("listening"));
    assert_eq!(std::fs::metadata(&path).expect("the socket").mode() & 0o777, 0o604);
    // Replaced, because no program accepts on it any more.
    drop(socket(&path).listen().expect("listening again"));
    let mode = std::fs::metadata(&path).expect("the socket").mode() & 0o777;
    assert_eq!(mode & !0o660, 0, "{mode:o}");
}

#[test]
fn socket_in_use_and_other_file_are_not_replaced() {
    let directory = tempfile::tempdir().expect("a directory");
    let path = directory.path().join("s");
    let first = socket(&path).listen().expect("listening");
    assert!(matches!(socket(&path).listen(), Err(ProgramSocketError::InUse)));
    drop(first);
    let file = directory.path().join("file");
    std::fs::write(&file, "mine").expect("written");
    assert!(matches!(socket(&file).listen(), Err(ProgramSocketError::NotASocket)));
    assert_eq!(std::fs::read(&file).expect("kept"), b"mine");
}

#[test]
fn errors_read_as_those_of_spawn_fcgi() {
    let error = socket(Path::new("/nonexistent/s")).listen().expect_err("no directory");
    assert_eq!(error.to_string(), "bind failed: No such file or directory");
}
