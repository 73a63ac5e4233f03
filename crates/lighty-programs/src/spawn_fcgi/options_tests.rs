use super::*;

fn parse(line: &str) -> Result<SpawnCommand, Misuse> {
    read(line.split_whitespace().map(OsString::from))
}

fn options(line: &str) -> Options {
    match parse(line) {
        Ok(SpawnCommand::Spawn(options)) => *options,
        other => panic!("{line}: {other:?}"),
    }
}

fn wrong(line: &str) -> String {
    match parse(line) {
        Err(misuse) if misuse != Misuse::Empty => misuse.to_string(),
        other => panic!("{line}: {other:?}"),
    }
}

#[test]
fn options_are_read_as_getopt_reads_them() {
    let read = options("-nS -p8080 -a ::1 -C 4 -F3 -b 7 -M 0600 -- prog -x");
    assert!(read.no_fork && read.socket_before_chroot);
    assert_eq!(read.address, Address::Inet("[::1]:8080".parse().expect("an address")));
    assert_eq!((read.php_children, read.forks, read.backlog), (Some(4), 3, 7));
    assert_eq!(read.mode, Some(0o600));
    assert_eq!(read.program, Started::Arguments("prog".into(), vec!["-x".into()]));
    // The first word that is not an option ends them.
    let read = options("-s /s prog -n");
    assert!(!read.no_fork);
    assert_eq!(read.program, Started::Arguments("prog".into(), vec!["-n".into()]));
    // Values are taken as they are, and so are arguments after the program.
    assert_eq!(options("-s=/s prog").address, Address::Unix("=/s".into()));
    assert_eq!(options("-s -- prog").address, Address::Unix("--".into()));
    assert_eq!(options("-s -p prog").address, Address::Unix("-p".into()));
    let read = options("-nSs/s -F 2 -- -x -- -y");
    assert_eq!((read.address, read.forks), (Address::Unix("/s".into()), 2));
    assert!(read.no_fork && read.socket_before_chroot);
    assert_eq!(read.program, Started::Arguments("-x".into(), vec!["--".into(), "-y".into()]));
    assert_eq!(options("-s /s - -n").program, Started::Arguments("-".into(), vec!["-n".into()]));
    let read = options("-s /s -f prog -u www -g www -U a -G b -c / -d / -P /pid");
    assert_eq!(read.program, Started::Shell("prog".into()));
    assert_eq!((read.forks, read.backlog, read.php_children), (1, 1024, None));
    assert_eq!(options("-s /s -C -5 prog").php_children, None);
}

#[test]
fn invalid_options_are_named() {
    let table = [
        ("-p 1", "no FastCGI application given"),
        ("-f prog", "no socket given (use either -p or -s)"),
        ("-p 0 prog", "no socket given (use either -p or -s)"),
        ("-p 1 -s /s prog", "either a Unix domain socket or a TCP-port, but not both"),
        ("-p x prog", "invalid port: x"),
        ("-p 65536 prog", "invalid port: 65536"),
        ("-p 1 -a localhost prog", "'localhost' is not a valid IP address"),
        ("-s /s -M 999 prog", "invalid mode: 999 (octal, such as 0660)"),
        ("-s /s -F x prog", "invalid children count: x"),
        ("-s /s -F 4097 prog", "invalid children count: 4097 (limit: 4096)"),
        ("-s /s -b x prog", "invalid backlog: x"),
        ("-Z", "invalid option -- 'Z'"),
        ("-nZs", "invalid option -- 'Z'"),
        ("-n=1", "invalid option -- '='"),
        ("-p=80 prog", "invalid port: =80"),
        ("--port 80", "invalid option -- '-'"),
        ("--help=x", "invalid option -- '-'"),
        ("-nSs", "option requires an argument -- 's'"),
        ("-s", "option requires an argument -- 's'"),
    ];
    for (line, text) in table {
        assert_eq!(wrong(line), text, "{line}");
    }
    assert_eq!(options("-s /s -F 4096 prog").forks, 4096);
    let path = "p".repeat(UNIX_PATH_BYTES_MAX);
    assert!(parse(&format!("-s {path} prog")).is_ok());
    assert_eq!(wrong(&format!("-s {path}p prog")), "path of the Unix domain socket is too long");
}

#[test]
fn help_and_version_come_before_everything() {
    assert_eq!(parse("").err(), Some(Misuse::Empty));
    assert!(matches!(parse("-p x -h"), Ok(SpawnCommand::Help)));
    assert!(matches!(parse("-p x --help"), Ok(SpawnCommand::Help)));
    assert!(matches!(parse("-v -h"), Ok(SpawnCommand::Version)));
    assert!(matches!(parse("-?"), Ok(SpawnCommand::Help)));
}

#[test]
fn bytes_of_other_encodings_are_values() {
    use std::os::unix::ffi::OsStringExt;
    let odd = OsString::from_vec(b"-s/\xff".to_vec());
    let Ok(SpawnCommand::Spawn(options)) = read([odd, "prog".into()]) else {
        panic!("valid options")
    };
    let path = OsString::from_vec(b"/\xff".to_vec());
    assert_eq!(options.address, Address::Unix(path.into()));
    assert_eq!(wrong("-é"), "invalid option -- 'é'");
}
