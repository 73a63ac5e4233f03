use super::*;

#[test]
fn only_a_regular_file_with_a_plain_name_is_found() {
    let directory = tempfile::tempdir().expect("a directory");
    let file = directory.path().join("f");
    std::fs::write(&file, "x").expect("written");
    let found = |path: &Path| touch(path.as_os_str().as_bytes());
    assert_eq!(found(&file), PathResult::File);
    assert_eq!(found(directory.path()), PathResult::NoFile);
    assert_eq!(found(&directory.path().join("missing")), PathResult::NoFile);
    let broken = directory.path().join("a\nb");
    std::fs::write(&broken, "x").expect("written");
    assert_eq!(found(&broken), PathResult::NoFile);
}

#[test]
fn the_number_of_threads_comes_from_the_environment() {
    let table = [
        (None, THREADS_DEFAULT),
        (Some("0"), THREADS_DEFAULT),
        (Some("x"), THREADS_DEFAULT),
        (Some("1"), 1),
        (Some("4096"), THREADS_MAX),
        (Some("4097"), THREADS_MAX),
    ];
    for (variable, threads) in table {
        assert_eq!(StatAccel::threads_of(variable), threads, "{variable:?}");
    }
}

#[test]
fn percent_signs_reach_the_server_as_such() {
    assert_eq!(escaped(b"/a b"), b"/a b");
    assert_eq!(escaped(b"/%20%"), b"/%2520%25");
}
