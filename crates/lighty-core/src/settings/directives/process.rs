//! Directives of the process: modules, listeners, logs, privileges, engines.

use std::sync::Arc;

use lighty_config::{CompileCtx, Kind, NeedKind, Reject, Scope, Value, parse_int, parse_string};
use lighty_io::file::DiskReads;
use lighty_io::log_writer::LogTarget;
use lighty_io::send::NetworkBackend;

use crate::log::Level;
use crate::settings::{Directive, Settings};

pub(super) fn rows() -> Vec<Directive> {
    let mut rows = modules();
    rows.extend(listeners());
    rows.extend(listener_details());
    rows.extend(logs());
    rows.extend(privileges());
    rows.extend(engines());
    rows
}

fn optional(text: Arc<str>) -> Option<Arc<str>> {
    (!text.is_empty()).then_some(text)
}

fn modules() -> Vec<Directive> {
    vec![
        Directive::strings("server.modules", |s, v| s.server.modules = v)
            .scope(Scope::Server)
            .default("()")
            .since("1.4")
            .doc(
                "Modules to load. lighty has all of its modules built in and keeps them in one \
                 fixed order. A module whose directives are set takes part without being named \
                 here; naming one that acts without directives (`mod_usertrack`) switches it on. \
                 Directives of modules that this version does not have are reported one by one.",
            )
            .example("server.modules = ( \"mod_access\", \"mod_rewrite\" )"),
        Directive::bool("server.compat-module-load", |s, v| s.server.compat_module_load = v)
            .scope(Scope::Server)
            .default("enable")
            .since("1.4")
            .doc("Accepted for compatibility: the default modules of lighttpd are always loaded.")
            .example("server.compat-module-load = \"disable\""),
    ]
}

fn listeners() -> Vec<Directive> {
    vec![
        Directive::string("server.bind", |s, v| s.server.bind = v)
            .scope(Scope::Server)
            .default("")
            .since("1.4")
            .doc(
                "Address to listen on: an IP address, a host name, or the absolute path of a unix \
                 socket. Empty: every address. More listeners come from `$SERVER[\"socket\"]`.",
            )
            .example("server.bind = \"127.0.0.1\""),
        Directive::int("server.port", 0..=65535, |s, v| s.server.port = Some(v as u16))
            .scope(Scope::Server)
            .default_prose("80, and 443 where `ssl.engine` is on at the top level")
            .since("1.4")
            .exact()
            .doc("Port to listen on. 0 lets the kernel choose one; the log shows it.")
            .example("server.port = 8080"),
        Directive::bool("server.use-ipv6", |s, v| s.server.use_ipv6 = v)
            .scope(Scope::Socket)
            .default("disable")
            .since("1.4")
            .doc("Listen on every IPv6 address where `server.bind` is empty, instead of IPv4.")
            .example("server.use-ipv6 = \"enable\""),
        Directive::bool("server.set-v6only", |s, v| s.server.v6only = v)
            .scope(Scope::Socket)
            .default("enable")
            .since("1.4")
            .doc("An IPv6 listener takes IPv6 clients only (`IPV6_V6ONLY`).")
            .example("server.set-v6only = \"disable\""),
        Directive::int("server.listen-backlog", 1..=65535, |s, v| {
            s.server.listen_backlog = v as i32
        })
        .scope(Scope::Socket)
        .default("1024")
        .since("1.4")
        .doc(
            "Connections that the kernel holds for the server until they are accepted; also \
                 bounded by `net.core.somaxconn`.",
        )
        .example("server.listen-backlog = 4096"),
    ]
}

/// Every name accepted by lighttpd 1.4 or 1.5.
const EVENT_HANDLERS: &[&str] = &[
    "linux-sysepoll",
    "epoll",
    "poll",
    "select",
    "linux-rtsig",
    "freebsd-kqueue",
    "kqueue",
    "solaris-devpoll",
    "solaris-eventports",
    "libev",
];

fn listener_details() -> Vec<Directive> {
    vec![
        Directive::bool("server.defer-accept", |s, v| s.server.defer_accept = v)
            .scope(Scope::Socket)
            .default("disable")
            .since("1.4")
            .doc("Let the kernel hand over a connection only once data arrived on it.")
            .example("server.defer-accept = \"enable\""),
        Directive::bool("server.mptcp", |s, v| s.server.mptcp = v)
            .scope(Scope::Socket)
            .default("disable")
            .since("lighty 0.1")
            .doc(
                "Listen with Multipath TCP (RFC 8684): clients that speak it keep a connection \
                 when they change networks. Other clients get plain TCP. On systems without it \
                 the listener speaks plain TCP and the error log has a warning.",
            )
            .example("server.mptcp = \"enable\""),
        Directive::parsed(
            "server.socket-perms",
            Kind::String,
            |value, ctx| {
                let text = parse_string(value)?;
                if text.is_empty() {
                    return Ok(None);
                }
                let mode = u32::from_str_radix(&text, 8).ok().filter(|mode| *mode <= 0o777);
                Ok(ctx.or_skip(
                    mode.ok_or_else(|| {
                        Reject::new("must be a mode in octal").help("write \"0660\"")
                    }),
                ))
            },
            |s: &mut Settings, mode| s.server.socket_perms = *mode,
        )
        .scope(Scope::Socket)
        .default("")
        .since("1.4")
        .doc("Mode of the listening unix socket, in octal. Empty: by the umask.")
        .example("server.socket-perms = \"0660\""),
        Directive::bool("server.systemd-socket-activation", |s, v| {
            s.server.systemd_socket_activation = v;
        })
        .scope(Scope::Server)
        .default("enable")
        .since("1.4")
        .doc(
            "Take listening sockets that the service manager passed (`LISTEN_FDS`, \
             `LISTEN_PID`, `LISTEN_FDNAMES`) instead of binding the same addresses again.",
        )
        .example("server.systemd-socket-activation = \"disable\""),
        Directive::choice("server.event-handler", EVENT_HANDLERS, |s, v| {
            s.server.event_handler = EVENT_HANDLERS[v].into();
        })
        .scope(Scope::Server)
        .default("linux-sysepoll")
        .since("1.4")
        .doc("Accepted for compatibility: lighty always waits for socket events with epoll.")
        .example("server.event-handler = \"linux-sysepoll\""),
    ]
}

fn logs() -> Vec<Directive> {
    vec![
        Directive::string("server.errorlog", |s, v| s.server.errorlog = optional(v))
            .needs(NeedKind::Log)
            .scope(Scope::Server)
            .default("")
            .since("1.4")
            .doc(
                "File of the error log, or `|command` to pipe it into a program. Empty: standard \
                 error. Opened again on HUP.",
            )
            .example("server.errorlog = \"/var/log/lighty/error.log\""),
        Directive::bool("server.errorlog-use-syslog", |s, v| s.server.errorlog_use_syslog = v)
            .scope(Scope::Server)
            .default("disable")
            .since("1.4")
            .doc("Send the error log to syslog.")
            .example("server.errorlog-use-syslog = \"enable\""),
        Directive::choice("server.errorlog-level", Level::NAMES, |s, v| {
            s.server.errorlog_level = Level::ALL[v];
        })
        .scope(Scope::Server)
        .default("notice")
        .since("lighty 0.1")
        .doc("Least important level that is written to the error log.")
        .example("server.errorlog-level = \"debug\""),
        Directive::choice("server.errorlog-format", &["text", "json"], |s, v| {
            s.server.errorlog_json = v == 1;
        })
        .scope(Scope::Server)
        .default("text")
        .since("lighty 0.1")
        .doc("Form of the error log's lines: text for people, or one JSON object per line.")
        .example("server.errorlog-format = \"json\""),
        Directive::int("server.errorlog-max-per-program", 0..=1 << 40, |s, v| {
            s.core.program_log_kbytes_max = v.unsigned_abs();
        })
        .default("1024")
        .since("lighty 0.1")
        .doc(
            "KB of the error log that the error output of one CGI program, one command of \
             `ssi.exec` or one request to FastCGI may fill; 0: no limit. The rest is read and \
             left out, and the log says how much it was.",
        )
        .example("server.errorlog-max-per-program = 64"),
        Directive::int("server.errorlog-program-rate", 0..=1 << 40, |s, v| {
            s.server.program_log_kbytes_per_second = v.unsigned_abs();
        })
        .scope(Scope::Server)
        .default("256")
        .since("lighty 0.1")
        .doc(
            "KB per second of the error log that the error output of all programs together may \
             fill, that of backends which the server starts (`bin-path`) with them; 0: no limit. \
             Output beyond the rate is dropped, and the log reports its amount. A program that \
             writes faster than the log accepts has to wait.",
        )
        .example("server.errorlog-program-rate = 32"),
        syslog_facility(),
    ]
}

fn syslog_facility() -> Directive {
    Directive::parsed(
        "server.syslog-facility",
        Kind::String,
        |value, ctx| {
            let name = match parse_string(value)? {
                // As in lighttpd, an empty value sets nothing.
                unset if unset.is_empty() => "daemon".into(),
                name => name,
            };
            let is_known = LogTarget::facilities().any(|known| *known == *name);
            let known = is_known.then(|| Arc::clone(&name)).ok_or_else(|| {
                Reject::new("must be a facility of syslog, such as daemon or local0")
                    .did_you_mean(&name, LogTarget::facilities())
            });
            Ok(ctx.or_skip(known).unwrap_or_else(|| "daemon".into()))
        },
        |s: &mut Settings, name| s.server.syslog_facility = Arc::clone(name),
    )
    .scope(Scope::Server)
    .default("daemon")
    .since("1.4")
    .doc("Facility of lines sent to syslog.")
    .example("server.syslog-facility = \"local3\"")
}

fn privileges() -> Vec<Directive> {
    vec![
        Directive::string("server.username", |s, v| s.server.username = optional(v))
            .scope(Scope::Server)
            .default("")
            .since("1.4")
            .doc(
                "User to become after sockets and logs are open; with its supplementary groups. \
                 Takes effect only when started as root.",
            )
            .example("server.username = \"www-data\""),
        Directive::string("server.groupname", |s, v| s.server.groupname = optional(v))
            .scope(Scope::Server)
            .default("")
            .since("1.4")
            .doc("Group to become; without it, the user's own.")
            .example("server.groupname = \"www-data\""),
        Directive::string("server.chroot", |s, v| s.server.chroot = optional(v))
            .needs(NeedKind::Nothing)
            .scope(Scope::Server)
            .default("")
            .since("1.4")
            .doc(
                "Directory to lock the process into; paths are then beneath it. Logs and the pid file \
                 are opened before; HUP looks logs up beneath it.",
            )
            .example("server.chroot = \"/srv/www\""),
        Directive::string("server.pid-file", |s, v| s.server.pid_file = optional(v))
            .needs(NeedKind::Removed)
            .scope(Scope::Server)
            .default("")
            .since("1.4")
            .doc(
                "File to write the process id to; removed when the server stops, or emptied where its \
                 user may not remove it. A server does not start while another one that runs \
                 holds the file; one that stops gracefully holds it no more.",
            )
            .example("server.pid-file = \"/run/lighty.pid\""),
        Directive::bool("server.core-files", |s, v| s.server.core_files = v)
            .scope(Scope::Server)
            .default("disable")
            .since("1.4")
            .doc("Allow a core file to be written when the process crashes.")
            .example("server.core-files = \"enable\""),
        Directive::int("server.max-fds", 0..=1_048_576, |s, v| s.server.max_fds = v as u64)
            .scope(Scope::Server)
            .default("0")
            .since("1.4")
            .doc(
                "File descriptors the process may have. 0: as many as the hard limit allows, up \
                 to 65536. Running out pauses accepting until some are free. Fewer than 64, and 32 \
                 for each worker, are taken for as many: the server needs them to start.",
            )
            .example("server.max-fds = 16384"),
    ]
}

const IO_ENGINES: &[&str] = &["auto", "io-uring", "threads"];
const STAT_CACHES: &[&str] = &["simple", "inotify", "disable", "fam"];

fn engines() -> Vec<Directive> {
    let mut rows = vec![
        Directive::int("server.max-worker", 0..=1024, |s, v| {
            s.server.max_worker = Some((v as u32).max(1));
        })
        .scope(Scope::Server)
        .default_prose("one per core")
        .since("1.4")
        .doc(
            "Worker threads, each with its own event loop and listener. 0 and 1: one. Unlike \
             lighttpd's worker processes they share limits, status and rates.",
        )
        .example("server.max-worker = 4"),
        Directive::parsed(
            "server.network-backend",
            Kind::String,
            network_backend,
            |s: &mut Settings, backend| s.server.network_backend = *backend,
        )
        .scope(Scope::Server)
        .default("auto")
        .since("1.4")
        .doc(
            "Method for sending files. `auto` sends files in the page cache immediately with \
             sendfile and reads others through the file engine, so that a slow disk never delays \
             other connections. The other values are those of lighttpd, for comparison: \
             `linux-sendfile`, `writev` and `write` read in the event loop; `io-uring`, \
             `gthread-aio`, `gthread-sendfile`, `posix-aio` and `linux-aio-sendfile` read outside \
             of it. Values of lighttpd on other systems (`freebsd-sendfile`, `solaris-sendfilev`, \
             `win32-send`, `win32-transmitfile`) mean `auto`, with a notice.",
        )
        .example("server.network-backend = \"auto\""),
        Directive::choice("server.io-engine", IO_ENGINES, |s, v| {
            s.server.io_engine = IO_ENGINES[v].into();
        })
        .scope(Scope::Server)
        .default("auto")
        .since("lighty 0.1")
        .doc(
            "Engine that opens, stats and reads files outside the event loop: an io_uring per \
             worker, or a thread pool. `auto` uses io_uring where the kernel and the container \
             allow it; `lighty -V` and the log at start name the engine and the reason.",
        )
        .example("server.io-engine = \"threads\""),
    ];
    rows.extend(engine_limits());
    rows.extend(stat_cache());
    rows
}

/// lighttpd backends for other systems.
const FOREIGN_BACKENDS: [&str; 5] = [
    "freebsd-sendfile",
    "gthread-freebsd-sendfile",
    "solaris-sendfilev",
    "win32-send",
    "win32-transmitfile",
];

fn network_backend(value: &Value, ctx: &CompileCtx) -> Result<NetworkBackend, Reject> {
    let name = parse_string(value)?;
    if name.is_empty() {
        // As in lighttpd, an empty value sets nothing.
        return Ok(NetworkBackend::Auto);
    }
    if FOREIGN_BACKENDS.contains(&&*name) {
        let message = format!("= \"{name}\" belongs to another system and means \"auto\" here");
        ctx.note(Reject::new(message));
        return Ok(NetworkBackend::Auto);
    }
    name.parse().map_err(|_| {
        let names = NetworkBackend::ALL.map(NetworkBackend::name);
        Reject::new(format!("must be one of {}", names.join(", "))).did_you_mean(&name, names)
    })
}

fn engine_limits() -> Vec<Directive> {
    vec![
        Directive::int("server.max-stat-threads", 0..=1024, |s, v| {
            s.server.max_stat_threads = v as usize;
        })
        .scope(Scope::Server)
        .default("64")
        .since("1.5")
        .doc(
            "Maximum number of concurrent opens and stats outside the event loop. 0: they run in \
             the event loop, which waits for each, as in lighttpd 1.4.",
        )
        .example("server.max-stat-threads = 16"),
        Directive::int("server.max-read-threads", 1..=1024, |s, v| {
            s.server.max_read_threads = v as usize;
        })
        .scope(Scope::Server)
        .default("64")
        .since("1.5")
        .doc("Reads of files that may wait for the disk at the same time (threads, or ring depth).")
        .alias("server.max-write-threads")
        .example("server.max-read-threads = 16"),
        max_bulk_reads(),
        Directive::int("server.read-chunk", 4..=65536, |s, v| {
            s.server.read_chunk_bytes = v as usize * 1024;
        })
        .scope(Scope::Server)
        .default("512")
        .since("lighty 0.1")
        .doc(
            "KB of a file that one read brings in. Smaller chunks turn a large file into seeks: \
             the ancestor's throughput collapsed below 384.",
        )
        .example("server.read-chunk = 1024"),
        Directive::int("server.pcre-match-limit", 1000..=10_000_000, |s, v| {
            s.server.pcre_match_limit = v as u32;
        })
        .limits_patterns()
        .scope(Scope::Server)
        .default("100000")
        .since("lighty 0.1")
        .doc(
            "Maximum number of steps for one match of a backtracking pattern (look-around, \
             back-references and the like; other patterns match in linear time). A request beyond \
             it is answered 500, and the log names the pattern. A step tries one part of the \
             pattern or examines 8 bytes; 100000 steps take about 10 ms, in which the worker does \
             nothing else.",
        )
        .example("server.pcre-match-limit = 200000"),
        Directive::bool("server.use-noatime", |s, v| s.server.use_noatime = v)
            .scope(Scope::Server)
            .default("disable")
            .since("1.5")
            .doc(
                "Open files with O_NOATIME; where that is not permitted (files of another user) \
                 they are opened without.",
            )
            .example("server.use-noatime = \"enable\""),
        Directive::strings("server.upload-dirs", |s, v| s.server.upload_dirs = v)
            .needs(NeedKind::Written)
            .scope(Scope::Server)
            .default("( \"/var/tmp\" )")
            .since("1.4")
            .doc("Directories for request bodies that have to be kept on disk for a while.")
            .example("server.upload-dirs = ( \"/var/cache/lighty/uploads\" )"),
    ]
}

fn max_bulk_reads() -> Directive {
    Directive::parsed(
        "server.max-bulk-reads",
        Kind::String,
        |value, _| bulk_reads(value),
        |s: &mut Settings, reads| s.server.max_bulk_reads = *reads,
    )
    .scope(Scope::Server)
    .default("0")
    .since("lighty 0.1")
    .doc(
        "Large files that are read at the same time on one disk: `auto`, or a number from 0 to 64. \
         Their reads wait while a path is looked up there or the beginning of a file or a file of \
         at most 64 KB is read, so that downloads do not delay small files; one read in each 50 ms \
         goes on all the same. `auto` means 2 on disks that seek, as the kernel says in \
         `queue/rotational` for the devices that are mounted at the start, virtio disks excepted, \
         and no limit and no order elsewhere. A number holds for every device; 0 switches limit \
         and order off. On an array of disks, set the number of disks that can read at the same \
         time.",
    )
    .example("server.max-bulk-reads = 4")
}

/// Maximum value of `server.max-bulk-reads`.
const BULK_READS_MAX: i64 = 64;

fn bulk_reads(value: &Value) -> Result<DiskReads, Reject> {
    if value.as_int().is_some() {
        return Ok(DiskReads::Limit(parse_int(value, &(0..=BULK_READS_MAX))? as usize));
    }
    match value.as_str() {
        Some("auto") => Ok(DiskReads::Auto),
        _ => Err(Reject::new(format!("must be \"auto\" or a number from 0 to {BULK_READS_MAX}"))),
    }
}

fn stat_cache() -> Vec<Directive> {
    vec![
        Directive::choice("server.stat-cache-engine", STAT_CACHES, |s, v| {
            let name = STAT_CACHES[v];
            s.server.stat_cache_engine = if name == "fam" { "inotify" } else { name }.into();
        })
        .scope(Scope::Server)
        .default("simple")
        .since("1.4")
        .skips_unknown()
        .doc(
            "Caching of file lookups. `simple` checks a file again at most once a second; \
             `inotify` does the same, and the kernel reports changes earlier; `disable` looks up \
             every time. `fam` means `inotify`.",
        )
        .example("server.stat-cache-engine = \"inotify\""),
        Directive::int("server.stat-cache-entries", 0..=1_000_000, |s, v| {
            s.server.stat_cache_entries_max = v as usize;
        })
        .scope(Scope::Server)
        .default("4096")
        .since("lighty 0.1")
        .doc("Files each worker keeps open in its stat cache.")
        .example("server.stat-cache-entries = 20000"),
        Directive::int("server.stat-cache-file-size", 0..=1024, |s, v| {
            s.server.stat_cache_small_file_bytes = v as u64 * 1024;
        })
        .scope(Scope::Server)
        .default("16")
        .since("lighty 0.1")
        .doc("Maximum size in KB of files whose content is kept in the stat cache.")
        .example("server.stat-cache-file-size = 64"),
        Directive::int("server.stat-cache-memory", 0..=1_048_576, |s, v| {
            s.server.stat_cache_small_total_bytes = v as u64 * 1024;
        })
        .scope(Scope::Server)
        .default("32768")
        .since("lighty 0.1")
        .doc(
            "Memory for file contents in each worker's stat cache, in KB; never more than an \
             eighth of the worker's share of the control group's memory limit.",
        )
        .example("server.stat-cache-memory = 131072"),
    ]
}
