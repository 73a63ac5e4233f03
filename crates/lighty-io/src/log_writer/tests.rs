use super::*;
use std::io::Read;
use std::path::Path;
use std::time::Instant;

const PATIENCE: Duration = Duration::from_secs(20);

fn open(path: &Path) -> LogWriter {
    LogWriter::open(LogTarget::File(path.to_path_buf())).expect("open")
}

fn read(path: &Path) -> String {
    std::fs::read_to_string(path).expect("read")
}

/// Waits for the effect of another process or thread.
fn until(what: &str, mut done: impl FnMut() -> bool) {
    let end = Instant::now() + PATIENCE;
    while !done() {
        assert!(Instant::now() < end, "never: {what}");
        std::thread::yield_now();
    }
}

#[test]
fn lines_of_all_workers_arrive_whole_and_in_order() {
    let dir = tempfile::tempdir().expect("tempdir");
    let path = dir.path().join("log");
    let writer = open(&path);
    std::thread::scope(|scope| {
        for worker in 0..4 {
            let handle = writer.handle();
            scope.spawn(move || {
                for line in 0..5_000 {
                    handle.write_line(format!("{worker} {line}").as_bytes());
                }
                handle.write_line(b"with its own newline\n");
            });
        }
    });
    assert!(writer.flush(PATIENCE));
    let text = read(&path);
    assert_eq!(text.lines().count(), 4 * 5_001);
    for worker in 0..4 {
        let prefix = format!("{worker} ");
        let lines = text.lines().filter_map(|line| line.strip_prefix(&prefix));
        assert!(lines.eq((0..5_000).map(|line| line.to_string())), "worker {worker}");
    }
}

#[test]
fn a_line_arrives_without_a_flush_also_after_a_rest() {
    let dir = tempfile::tempdir().expect("tempdir");
    let path = dir.path().join("log");
    let writer = open(&path);
    let handle = writer.handle();
    for count in 1..=3 {
        handle.write_line(b"line");
        until("the line", || read(&path).lines().count() == count);
        until("asleep", || !writer.shared.awake.load(Ordering::SeqCst));
    }
}

#[test]
fn lines_logged_before_a_rotation_stay_in_the_old_file() {
    let dir = tempfile::tempdir().expect("tempdir");
    let (path, old) = (dir.path().join("log"), dir.path().join("log.1"));
    let writer = open(&path);
    let handle = writer.handle();
    handle.write_line(b"before");
    std::fs::rename(&path, &old).expect("rename");
    writer.reopen(&Reopening::new(|_| {}));
    assert!(writer.flush(PATIENCE));
    until("the new file", || path.exists());
    handle.write_line(b"after");
    assert!(writer.flush(PATIENCE));
    assert_eq!((read(&old), read(&path)), ("before\n".to_owned(), "after\n".to_owned()));
}

#[test]
fn a_switch_divides_the_lines_exactly() {
    let dir = tempfile::tempdir().expect("tempdir");
    let path = |number: u32| dir.path().join(number.to_string());
    let writer = open(&path(0));
    let handle = writer.handle();
    for number in 0..200 {
        handle.write_line(format!("{number} last").as_bytes());
        let next = LogWriter::prepare(LogTarget::File(path(number + 1))).expect("open");
        writer.switch(next);
        handle.write_line(format!("{} first", number + 1).as_bytes());
        // A handle created while the log waits to be switched.
        writer.handle().write_line(format!("{} second", number + 1).as_bytes());
        until("the new file", || read(&path(number + 1)).lines().count() == 2);
        let expected = match number {
            0 => "0 last\n".to_owned(),
            _ => format!("{number} first\n{number} second\n{number} last\n"),
        };
        assert_eq!(read(&path(number)), expected);
    }
}

#[test]
fn a_flush_waits_for_the_lines_behind_a_switch() {
    let dir = tempfile::tempdir().expect("tempdir");
    let path = |number: u32| dir.path().join(number.to_string());
    let writer = open(&path(0));
    let handle = writer.handle();
    for number in 0..50 {
        handle.write_line(b"before");
        writer.switch(LogWriter::prepare(LogTarget::File(path(number + 1))).expect("open"));
        handle.write_line(b"after");
        assert!(writer.flush(PATIENCE));
        assert!(read(&path(number + 1)).ends_with("after\n"), "{number}");
    }
}

#[test]
fn a_log_rotated_before_its_first_line_goes_to_the_new_file() {
    let dir = tempfile::tempdir().expect("tempdir");
    let (path, old) = (dir.path().join("log"), dir.path().join("log.1"));
    let writer = open(&path);
    let handle = writer.handle();
    std::fs::rename(&path, &old).expect("rename");
    writer.reopen(&Reopening::new(|_| {}));
    handle.write_line(b"first");
    assert!(writer.flush(PATIENCE));
    assert_eq!((read(&old), read(&path)), (String::new(), "first\n".to_owned()));
}

#[test]
fn a_log_that_cannot_be_opened_again_goes_on_in_the_old_file() {
    let dir = tempfile::tempdir().expect("tempdir");
    let (sub, moved) = (dir.path().join("sub"), dir.path().join("moved"));
    std::fs::create_dir(&sub).expect("mkdir");
    let writer = open(&sub.join("log"));
    let handle = writer.handle();
    handle.write_line(b"one");
    std::fs::rename(&sub, &moved).expect("rename");
    writer.reopen(&Reopening::new(|_| {}));
    handle.write_line(b"two");
    assert!(writer.flush(PATIENCE));
    assert_eq!(read(&moved.join("log")), "one\ntwo\n");
}

#[test]
fn a_log_without_lines_has_no_thread_and_is_flushed_at_once() {
    let dir = tempfile::tempdir().expect("tempdir");
    let writer = open(&dir.path().join("log"));
    let _handle = writer.handle();
    assert!(writer.flush(Duration::ZERO));
    assert!(lock(&writer.shared.control).sink.is_some());
    let missing = dir.path().join("missing/log");
    assert!(LogWriter::open(LogTarget::File(missing)).is_err());
}

#[test]
fn dropping_the_writer_writes_what_is_left() {
    let dir = tempfile::tempdir().expect("tempdir");
    let path = dir.path().join("log");
    let writer = open(&path);
    writer.handle().write_line(b"last words");
    drop(writer);
    assert_eq!(read(&path), "last words\n");
}

#[test]
fn an_unread_pipe_stops_no_worker_and_loses_only_what_does_not_fit() {
    let dir = tempfile::tempdir().expect("tempdir");
    let fifo = dir.path().join("fifo");
    let (kind, mode) =
        (rustix::fs::FileType::Fifo, rustix::fs::Mode::RUSR | rustix::fs::Mode::WUSR);
    rustix::fs::mknodat(rustix::fs::CWD, &fifo, kind, mode, 0).expect("mkfifo");
    // Holds the pipe open and reads nothing from it until the FIFO says so.
    let command = format!("|read end < {}", fifo.display());
    // Dropped after the writer, which would start the command again.
    let _end = EndCommand(fifo);
    let writer = LogWriter::open(LogTarget::parse(&command)).expect("open");
    let handle = writer.handle();
    let line = [b'x'; 1_023];
    let begun = Instant::now();
    // The thread takes one buffer and is stuck with it; the next one fills up.
    while handle.dropped_lines() == 0 {
        handle.write_line(&line);
    }
    assert!(!writer.flush(Duration::from_millis(10)), "it cannot be flushed");
    assert!(begun.elapsed() < PATIENCE, "and nobody waits for it");
}

/// Ends the command that reads this FIFO, also if the test fails.
struct EndCommand(std::path::PathBuf);

impl Drop for EndCommand {
    fn drop(&mut self) {
        std::fs::write(&self.0, "end\n").expect("tell the command");
    }
}

#[test]
fn the_limit_holds_at_n_and_n_plus_one() {
    let dir = tempfile::tempdir().expect("tempdir");
    let writer = open(&dir.path().join("log"));
    let handle = writer.handle();
    handle.write_line(&vec![b'x'; HANDLE_BYTES_MAX]);
    assert_eq!(handle.dropped_lines(), 1, "one more with its newline");
    handle.write_line(&vec![b'x'; HANDLE_BYTES_MAX - 1]);
    assert!(writer.flush(PATIENCE));
    assert_eq!(read(&dir.path().join("log")).len(), HANDLE_BYTES_MAX);
}

#[test]
fn a_command_gets_the_lines_and_is_started_again() {
    let dir = tempfile::tempdir().expect("tempdir");
    let path = dir.path().join("out");
    // Takes one line and ends.
    let command = format!("|read line; echo \"$line\" >> {}", path.display());
    let writer = LogWriter::open(LogTarget::parse(&command)).expect("open");
    let handle = writer.handle();
    handle.write_line(b"first");
    until("the first line", || path.exists() && read(&path) == "first\n");
    // The pipe breaks under one of these; a new command gets the rest.
    until("another line", || {
        handle.write_line(b"more");
        std::thread::sleep(Duration::from_millis(10));
        read(&path).starts_with("first\nmore\n")
    });
}

#[test]
fn a_full_disk_is_waited_for_and_stopping_is_prompt() {
    if !Path::new("/dev/full").exists() {
        return;
    }
    let writer = open(Path::new("/dev/full"));
    let handle = writer.handle();
    handle.write_line(b"there is no room for this");
    assert!(!writer.flush(Duration::from_millis(20)));
    handle.write_line(b"nor for this");
    let begun = Instant::now();
    drop(writer);
    assert!(begun.elapsed() < Duration::from_millis(DROP_PATIENCE_MS + 2_000));
}

#[test]
fn a_log_that_is_rotated_away_from_a_full_disk_goes_on_in_the_new_file() {
    if !Path::new("/dev/full").exists() {
        return;
    }
    let dir = tempfile::tempdir().expect("tempdir");
    let path = dir.path().join("log");
    std::os::unix::fs::symlink("/dev/full", &path).expect("a link");
    let writer = open(&path);
    let handle = writer.handle();
    handle.write_line(b"before");
    // The thread has taken the line, and cannot write it.
    until("taken", || lock(&handle.buffer).bytes.is_empty());
    std::fs::remove_file(&path).expect("rotate");
    writer.reopen(&Reopening::new(|_| {}));
    handle.write_line(b"after");
    assert!(writer.flush(PATIENCE));
    assert_eq!(read(&path), "before\nafter\n");
}

#[test]
fn a_log_that_cannot_be_written_does_not_spin_when_it_is_opened_again() {
    if !Path::new("/dev/full").exists() {
        return;
    }
    let writer = open(Path::new("/dev/full"));
    let handle = writer.handle();
    handle.write_line(b"there is no room for this");
    until("taken", || lock(&handle.buffer).bytes.is_empty());
    writer.reopen(&Reopening::new(|_| {}));
    until("opened again", || !lock(&writer.shared.control).reopen);
}

/// Runs in a process of its own, because the report function is set once per process.
#[test]
fn failures_of_the_error_log_are_written_to_it() {
    const MARK: &str = "LIGHTY_TEST_TROUBLE_IN_ITSELF";
    if std::env::var_os(MARK).is_some() {
        return reopen_in_a_directory_that_is_gone();
    }
    let output = std::process::Command::new(std::env::current_exe().expect("test binary"))
        .args([
            "--exact",
            "log_writer::tests::trouble_of_the_error_log_itself_may_be_written_to_it",
        ])
        .arg("--nocapture")
        .env(MARK, "1")
        .output()
        .expect("run");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
}

fn reopen_in_a_directory_that_is_gone() {
    let dir = tempfile::tempdir().expect("tempdir");
    let (inner, moved) = (dir.path().join("logs"), dir.path().join("moved"));
    std::fs::create_dir(&inner).expect("mkdir");
    let writer = open(&inner.join("error.log"));
    let handle = writer.handle();
    report_failures_to(move |text| handle.write_line(text.as_bytes()));
    std::fs::rename(&inner, &moved).expect("rename");
    let (done, finished) = std::sync::mpsc::channel();
    std::thread::spawn(move || {
        writer.reopen(&Reopening::new(|_| {}));
        let _ = done.send(writer);
    });
    let writer = finished.recv_timeout(PATIENCE).expect("reopening must not wait for itself");
    assert!(writer.flush(PATIENCE));
    assert!(read(&moved.join("error.log")).contains("cannot open it again"));
}

#[test]
fn a_fifo_without_a_reader_is_opened_and_keeps_its_lines() {
    let dir = tempfile::tempdir().expect("tempdir");
    let fifo = dir.path().join("fifo");
    rustix::fs::mkfifoat(rustix::fs::CWD, &fifo, rustix::fs::Mode::RWXU).expect("mkfifo");
    let writer = open(&fifo);
    writer.handle().write_line(b"before");
    assert!(writer.flush(PATIENCE));
    let mut reader = std::fs::File::open(&fifo).expect("open");
    let mut line = [0; 7];
    reader.read_exact(&mut line).expect("read");
    assert_eq!(&line, b"before\n");
    // Now with a reader.
    let second = open(&fifo);
    second.handle().write_line(b"beside");
    assert!(second.flush(PATIENCE));
    reader.read_exact(&mut line).expect("read");
    assert_eq!(&line, b"beside\n");
}

/// The old files of a log and the log itself, oldest first.
fn rotated(path: &Path) -> Vec<String> {
    let name = |number: u32| format!("{}.{number}", path.display());
    let count = (1..).find(|number| !Path::new(&name(*number)).exists()).expect("an end") - 1;
    let old = (1..=count).rev().map(|number| read(Path::new(&name(number))));
    old.chain([read(path)]).collect()
}

#[test]
fn no_line_is_lost_or_torn_by_rotations() {
    let dir = tempfile::tempdir().expect("tempdir");
    let path = dir.path().join("log");
    let writer = open(&path);
    let rotation = Rotation { bytes_max: Some(1_000), kept_files: 1_000, age_max_s: None };
    writer.set_rotation(Some(rotation));
    let (one, other) = (writer.handle(), writer.handle());
    for number in 0..5_000 {
        one.write_line(format!("one {number}").as_bytes());
        other.write_line(format!("other {number}").as_bytes());
    }
    assert!(writer.flush(PATIENCE));
    let files = rotated(&path);
    assert!(files.len() > 90, "{} files", files.len());
    assert!(files.iter().all(|file| file.len() <= 1_000 && file.ends_with('\n')));
    let text = files.concat();
    for who in ["one", "other"] {
        let numbers = text.lines().filter_map(|line| line.strip_prefix(who)?.strip_prefix(' '));
        assert!(numbers.eq((0..5_000).map(|number| number.to_string())), "{who}");
    }
}

#[test]
fn rotation_ends_when_it_is_switched_off() {
    let dir = tempfile::tempdir().expect("tempdir");
    let path = dir.path().join("log");
    let writer = open(&path);
    let rotation = Rotation { bytes_max: Some(10), kept_files: 3, age_max_s: None };
    let handle = writer.handle();
    for (rotation, expected) in [
        (Some(rotation), vec!["0 line\n", "1 line\n"]),
        (None, vec!["0 line\n", "1 line\n2 line\n"]),
    ] {
        writer.set_rotation(rotation);
        let before = if rotation.is_some() { 0..2 } else { 2..3 };
        before.for_each(|number| handle.write_line(format!("{number} line").as_bytes()));
        assert!(writer.flush(PATIENCE));
        assert_eq!(rotated(&path), expected);
    }
}

#[test]
fn a_rotation_that_fails_is_reported_and_loses_nothing() {
    let dir = tempfile::tempdir().expect("tempdir");
    let path = dir.path().join("log");
    std::fs::create_dir(dir.path().join("log.1")).expect("a directory in the way");
    let writer = open(&path);
    writer.set_rotation(Some(Rotation { bytes_max: Some(10), kept_files: 1, age_max_s: None }));
    let handle = writer.handle();
    (0..100).for_each(|number| handle.write_line(format!("line {number}").as_bytes()));
    assert!(writer.flush(PATIENCE));
    assert!(read(&path).lines().eq((0..100).map(|number| format!("line {number}"))));
}
