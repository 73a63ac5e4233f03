//! Settings: the typed outcome of the configuration for one set of matching conditions.
//!
//! A request holds one `Rc<Settings>`; nothing is looked up by name or merged while it is served.

pub mod backtracking;
pub mod cidr;
pub mod counted_host;
pub mod directives;
pub mod limits;
pub mod places;
pub mod route_name;
pub mod rules;
pub mod services;
pub mod tls;
pub mod tunnel_reload;

use std::any::{Any, TypeId};
use std::fmt::{self, Debug};
use std::ops::RangeInclusive;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use lighty_http::etag::{ETag, ETagParts, FileIdentity};
use lighty_http::mime::MimeAssign;
use lighty_io::file::{DiskReads, Follow, Meta};
use lighty_io::send::NetworkBackend;

use crate::exchange::throttle::Bucket;
use crate::pipeline::phase::HookTable;
use crate::settings::places::Places;

/// Everything that applies to a request. Cloned once per variant, never per request.
#[derive(Clone, Default)]
pub struct Settings {
    /// Directives of server scope, the same for all requests.
    pub server: ServerSettings,
    /// Directives that conditions may change.
    pub core: CoreSettings,
    modules: Vec<(TypeId, Box<dyn SettingsSlot>)>,
    /// Distinguishes this variant from all others.
    pub variant: VariantId,
    /// Modules that have work under these settings.
    pub(crate) hook_table: HookTable,
}

/// A directive that changes [`Settings`].
pub type Directive = lighty_config::Directive<Settings>;

/// Settings of one module.
pub trait ModuleSettings: Clone + Default + Debug + Send + Sync + 'static {
    /// The defaults, for a configuration that sets none of the module's directives.
    fn defaults() -> &'static Self;
}

/// Implements [`ModuleSettings`] for a type with `Default`.
#[macro_export]
macro_rules! module_settings {
    ($type:ty) => {
        impl $crate::settings::ModuleSettings for $type {
            fn defaults() -> &'static Self {
                static DEFAULTS: std::sync::LazyLock<$type> =
                    std::sync::LazyLock::new(<$type>::default);
                &DEFAULTS
            }
        }
    };
}

trait SettingsSlot: Any + Debug + Send + Sync {
    fn is_default(&self) -> bool;
    fn boxed_clone(&self) -> Box<dyn SettingsSlot>;
}

impl<T: ModuleSettings> SettingsSlot for T {
    fn is_default(&self) -> bool {
        format!("{self:?}") == format!("{:?}", T::defaults())
    }
    fn boxed_clone(&self) -> Box<dyn SettingsSlot> {
        Box::new(self.clone())
    }
}

impl Clone for Box<dyn SettingsSlot> {
    fn clone(&self) -> Self {
        (**self).boxed_clone()
    }
}

/// Prints values only: two variants with the same values print the same.
impl Debug for Settings {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let set: Vec<_> =
            self.modules.iter().map(|(_, slot)| slot).filter(|slot| !slot.is_default()).collect();
        f.debug_struct("Settings")
            .field("server", &self.server)
            .field("core", &self.core)
            .field("modules", &set)
            .finish()
    }
}

impl Settings {
    /// A module's settings.
    pub fn module<T: ModuleSettings>(&self) -> &T {
        self.module_if_set().unwrap_or_else(|| T::defaults())
    }

    /// A module's settings, if one of its directives is set.
    #[inline]
    pub fn module_if_set<T: ModuleSettings>(&self) -> Option<&T> {
        let wanted = TypeId::of::<T>();
        let (_, slot) = self.modules.iter().find(|(id, _)| *id == wanted)?;
        (&**slot as &dyn Any).downcast_ref()
    }

    /// A module's settings, for a directive to change.
    pub fn module_mut<T: ModuleSettings>(&mut self) -> &mut T {
        let wanted = TypeId::of::<T>();
        let at = match self.modules.iter().position(|(id, _)| *id == wanted) {
            Some(at) => at,
            None => {
                self.modules.push((wanted, Box::new(T::default())));
                self.modules.len() - 1
            }
        };
        let slot: &mut dyn Any = &mut *self.modules[at].1;
        slot.downcast_mut().expect("a slot holds the type of its id")
    }
}

/// A number unique among all settings variants. A clone gets a new one.
#[derive(Debug, PartialEq, Eq)]
pub struct VariantId(u64);

impl Default for VariantId {
    fn default() -> Self {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        Self(NEXT.fetch_add(1, Ordering::Relaxed))
    }
}

impl Clone for VariantId {
    fn clone(&self) -> Self {
        Self::default()
    }
}

impl VariantId {
    /// The variant's number.
    pub fn number(&self) -> u64 {
        self.0
    }
}

/// Directives of server scope.
#[derive(Clone, Debug)]
pub struct ServerSettings {
    /// `server.modules`: names in the order written, which is not the order of execution.
    pub modules: lighty_config::Strings,
    /// `server.compat-module-load`: read for compatibility; all modules are built in.
    pub compat_module_load: bool,
    /// `server.bind`: an IP address, a host name or a unix socket; empty: all addresses.
    pub bind: Arc<str>,
    /// `None`: 443 over TLS, else 80.
    pub port: Option<u16>,
    /// Listeners without an `ssl.engine` of their own use TLS.
    pub speaks_tls: bool,
    /// `server.use-ipv6`: listeners without an address take IPv6 instead of IPv4.
    pub use_ipv6: bool,
    /// `server.set-v6only`: IPv6 listeners do not accept IPv4.
    pub v6only: bool,
    /// `server.listen-backlog`: connections that the kernel queues until they are accepted.
    pub listen_backlog: i32,
    /// `server.defer-accept`: the kernel hands a connection over once data has arrived.
    pub defer_accept: bool,
    /// `server.mptcp`: listeners speak Multipath TCP.
    pub mptcp: bool,
    /// `server.socket-perms`: mode of unix sockets; `None`: as the umask allows.
    pub socket_perms: Option<u32>,
    /// `server.systemd-socket-activation`: uses listeners passed by the service manager.
    pub systemd_socket_activation: bool,
    /// `server.errorlog`: a file, or a program after `|`; `None`: standard error.
    pub errorlog: Option<Arc<str>>,
    /// `server.errorlog-use-syslog`: the error log goes to syslog.
    pub errorlog_use_syslog: bool,
    /// `server.errorlog-level`: the lowest level that is written.
    pub errorlog_level: crate::log::Level,
    /// `server.errorlog-levels`: modules with another level.
    pub errorlog_levels: Arc<[(crate::log::levels::LogModule, crate::log::Level)]>,
    /// `server.errorlog-max-repeats`: lines of a message in a minute; 0: no limit.
    pub errorlog_repeats_max: u32,
    /// `server.log-rotate`: rotation of the error log and of access logs.
    pub log_rotation: Option<lighty_io::log_writer::Rotation>,
    /// `server.errorlog-format`: lines are JSON objects instead of text.
    pub errorlog_json: bool,
    /// Limit on the error-log output of all programs together; 0 = no limit.
    pub program_log_kbytes_per_second: u64,
    /// `server.syslog-facility`: the facility's name, such as `daemon`.
    pub syslog_facility: Arc<str>,
    /// `server.chroot`: the directory that becomes the process's root.
    pub chroot: Option<Arc<str>>,
    /// `server.username`: the user that the process switches to after binding its listeners.
    pub username: Option<Arc<str>>,
    /// `server.groupname`: the group that the process switches to.
    pub groupname: Option<Arc<str>>,
    /// `server.pid-file`: the file for the process id.
    pub pid_file: Option<Arc<str>>,
    /// `server.sandbox` and `server.sandbox-*`.
    pub sandbox: SandboxSettings,
    /// `server.control-socket`: `None`: beside the pid file; empty: none.
    pub control_socket: Option<Arc<str>>,
    /// `server.state-dir`: the directory for state that outlives the process.
    pub state_dir: Option<Arc<str>>,
    /// `server.control-readers`: groups that may query the server over the control socket.
    pub control_readers: lighty_config::Strings,
    /// `server.control-admins`: groups that may also change it.
    pub control_admins: lighty_config::Strings,
    /// `server.core-files`: a crash may leave a core dump.
    pub core_files: bool,
    /// `server.event-handler`: read for compatibility; events always come from epoll.
    pub event_handler: Arc<str>,
    /// `server.network-backend`: how files reach the network.
    pub network_backend: NetworkBackend,
    /// `server.io-engine`: engine that opens, stats and reads files: `auto`, `io-uring` or
    /// `threads`.
    pub io_engine: Arc<str>,
    /// `server.stat-cache-engine`: `simple`, `inotify` or `disable`.
    pub stat_cache_engine: Arc<str>,
    /// `server.stat-cache-entries`: files that each worker keeps open.
    pub stat_cache_entries_max: usize,
    /// `server.stat-cache-file-size`, in bytes: contents up to it are kept in memory.
    pub stat_cache_small_file_bytes: u64,
    /// `server.stat-cache-memory`, in bytes: maximum contents that each worker keeps.
    pub stat_cache_small_total_bytes: u64,
    /// `None`: one per core.
    pub max_worker: Option<u32>,
    /// `server.pcre-match-limit`: step limit of a match that needs backtracking.
    pub pcre_match_limit: u32,
    /// 0: the hard limit.
    pub max_fds: u64,
    /// 0: a third of max-fds.
    pub max_connections: u32,
    /// `server.max-stat-threads`: opens and stats at the same time; 0: in the event loop.
    pub max_stat_threads: usize,
    /// `server.max-read-threads`: reads of files at the same time (threads, or ring depth).
    pub max_read_threads: usize,
    /// `server.max-bulk-reads`: reads of large files at the same time on one disk.
    pub max_bulk_reads: DiskReads,
    /// `server.read-chunk`: bytes per read of a file.
    pub read_chunk_bytes: usize,
    /// `server.use-noatime`: files are opened with O_NOATIME where that is permitted.
    pub use_noatime: bool,
    /// `server.protocol-http11`: connections of HTTP/1 stay open between requests.
    pub protocol_http11: bool,
    /// Clients may use HTTP/2.
    pub http2: bool,
    /// Limits for HTTP/2 connections (`http2.*`).
    pub http2_limits: lighty_wire::http2::Limits,
    /// `server.max-head-time`: seconds from a head's first byte to its last; 0: no limit.
    pub max_head_time_s: u32,
    /// `server.max-handshake-time`: seconds that a TLS handshake may take; 0: no limit.
    pub max_handshake_time_s: u32,
    /// `server.max-handshake-backlog`: TLS handshakes waiting for one worker; 0: no limit.
    pub max_handshake_backlog: u32,
    /// `server.max-request-field-size`: maximum bytes of a request's header section (431).
    pub max_request_field_bytes: usize,
    /// `server.max-request-fields`: maximum fields of a request (431).
    pub max_request_fields: u32,
    /// `server.max-url-length`: maximum bytes of a request's target (414).
    pub max_url_bytes: usize,
    /// `server.http-parseopts`: strictness and normalisation of requests.
    pub parse: lighty_http::uri::ParseOpts,
    /// 0: wait for the last response to be sent.
    pub graceful_shutdown_timeout_s: u32,
    /// `server.upgrade-timeout`: seconds for a new process to become ready.
    pub upgrade_timeout_s: u32,
    /// Ends of tunnels by the server.
    pub tunnels: tunnel_reload::TunnelSettings,
    /// `server.drain-delay`: seconds between a graceful stop's order and the end of listening.
    pub drain_delay_s: u32,
    /// `server.max-worker-restarts`: restarts of workers within a minute.
    pub worker_restarts_max: u32,
    /// `server.absolute-dir-redirect` of the feature flags: Location contains scheme and host.
    pub absolute_dir_redirect: bool,
    /// `http10.range` of the feature flags: ranges are served to HTTP/1.0 too.
    pub http10_range: bool,
    /// `server.odd-field-variables` of the feature flags: request fields become variables of
    /// programs even if their names have characters other than letters, digits and `-`.
    pub odd_field_variables: bool,
    /// `server.upload-dirs`: directories for spooled bodies.
    pub upload_dirs: lighty_config::Strings,
}

impl ServerSettings {
    /// The port of listeners that specify none.
    pub fn default_port(&self) -> u16 {
        self.port.unwrap_or(if self.speaks_tls { 443 } else { 80 })
    }
}

impl Default for ServerSettings {
    fn default() -> Self {
        Self {
            modules: Arc::from([]),
            compat_module_load: true,
            bind: "".into(),
            port: None,
            speaks_tls: false,
            use_ipv6: false,
            v6only: true,
            listen_backlog: 1024,
            defer_accept: false,
            mptcp: false,
            socket_perms: None,
            systemd_socket_activation: true,
            errorlog: None,
            errorlog_use_syslog: false,
            errorlog_level: crate::log::Level::Notice,
            errorlog_levels: Arc::from([]),
            errorlog_repeats_max: limits::ERROR_LOG_REPEATS_MAX,
            log_rotation: None,
            errorlog_json: false,
            program_log_kbytes_per_second: limits::PROGRAM_LOG_KBYTES_PER_SECOND,
            syslog_facility: "daemon".into(),
            chroot: None,
            username: None,
            groupname: None,
            pid_file: None,
            sandbox: SandboxSettings::default(),
            control_socket: None,
            state_dir: None,
            control_readers: Arc::from([]),
            control_admins: Arc::from([]),
            core_files: false,
            event_handler: "linux-sysepoll".into(),
            network_backend: NetworkBackend::Auto,
            io_engine: "auto".into(),
            stat_cache_engine: "simple".into(),
            stat_cache_entries_max: 4096,
            stat_cache_small_file_bytes: 16 * 1024,
            stat_cache_small_total_bytes: 32 * 1024 * 1024,
            max_worker: None,
            pcre_match_limit: lighty_config::limits::PATTERN_STEPS,
            max_fds: 0,
            max_connections: 0,
            max_stat_threads: 64,
            max_read_threads: 64,
            max_bulk_reads: DiskReads::default(),
            read_chunk_bytes: 512 * 1024,
            use_noatime: false,
            protocol_http11: true,
            http2: true,
            http2_limits: lighty_wire::http2::Limits::default(),
            max_head_time_s: limits::HEAD_TIME_SECONDS,
            max_handshake_time_s: limits::HANDSHAKE_TIME_SECONDS,
            max_handshake_backlog: limits::HANDSHAKE_BACKLOG_MAX,
            max_request_field_bytes: limits::FIELD_BYTES_MAX,
            max_request_fields: limits::FIELDS_MAX,
            max_url_bytes: limits::TARGET_BYTES_MAX,
            parse: lighty_http::uri::ParseOpts::default(),
            graceful_shutdown_timeout_s: 0,
            upgrade_timeout_s: 30,
            tunnels: tunnel_reload::TunnelSettings::default(),
            drain_delay_s: 0,
            worker_restarts_max: limits::WORKER_RESTARTS_MAX,
            absolute_dir_redirect: false,
            http10_range: false,
            odd_field_variables: false,
            upload_dirs: Arc::from([Arc::from("/var/tmp")]),
        }
    }
}

/// The sandbox.
#[derive(Clone, Debug, Default)]
pub struct SandboxSettings {
    /// `server.sandbox`: its use.
    pub mode: SandboxMode,
    /// `server.sandbox-paths`: further paths that stay accessible, some with `:rw` behind them.
    pub paths: lighty_config::Strings,
    /// `server.sandbox-ports`: further TCP ports to connect to.
    pub ports: Arc<[RangeInclusive<u16>]>,
}

/// Use of the sandbox.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum SandboxMode {
    /// The layers that the kernel and the configuration permit.
    #[default]
    Auto,
    /// None.
    Off,
    /// All layers, for all threads; without one of them the server does not start.
    Required,
}

impl SandboxMode {
    /// All modes.
    pub const ALL: [SandboxMode; 3] = [SandboxMode::Auto, SandboxMode::Off, SandboxMode::Required];

    /// Their names in a configuration, in the same order.
    pub const NAMES: &[&str] = &["auto", "off", "required"];

    /// Its name.
    pub fn name(self) -> &'static str {
        Self::NAMES[self as usize]
    }
}

/// Mode of passing a body between a client and a backend.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum StreamBody {
    /// 0: completely buffered, in memory and then in `server.upload-dirs`, before it is passed on.
    Spool,
    /// 1: as it arrives.
    #[default]
    Stream,
    /// 2: as it arrives, with little buffering.
    StreamSmall,
}

/// Directives that any condition may change.
#[derive(Clone, Debug)]
pub struct CoreSettings {
    /// `server.document-root`: the directory that holds the site's files.
    pub document_root: Arc<str>,
    /// `Server` field; empty: not sent.
    pub tag: Arc<str>,
    /// `server.name`: SERVER_NAME of programs; `None`: the requested host.
    pub server_name: Option<Arc<str>>,
    /// `server.max-keep-alive-requests`: requests on one connection; 1: no keep-alive.
    pub max_keep_alive_requests: u32,
    /// `server.max-keep-alive-idle`: seconds between two requests; 0: no limit.
    pub max_keep_alive_idle_s: u32,
    /// `server.max-connection-idle`: seconds that a new connection waits for its first byte.
    pub max_connection_idle_s: u32,
    /// `server.max-read-idle`: seconds without a byte of a request's body; 0: no limit.
    pub max_read_idle_s: u32,
    /// `server.max-write-idle`: seconds without progress in sending to a client; 0: no limit.
    pub max_write_idle_s: u32,
    /// `server.max-half-closed-idle`: seconds of work for a client that has closed its sending
    /// side; 0: no limit.
    pub max_half_closed_idle_s: u32,
    /// `server.min-read-rate`: bytes per second; 0 = off.
    pub min_read_rate: u32,
    /// Minimum bytes per second that a client must accept of a response; 0 = off.
    pub min_write_rate: u32,
    /// `server.max-request-size`, in bytes; 0 = no limit.
    pub max_request_bytes: u64,
    /// `maxminddb.db`: databases of places.
    pub places: Places,
    /// Shared by all connections of the process to which the same assignment applies.
    pub shared_bucket: Option<Arc<Bucket>>,
    /// KB per second for each connection; 0: no limit.
    pub connection_kbytes_per_second: u64,
    /// `server.error-handler`: the URL that responds to failed requests (4xx, 5xx).
    pub error_handler: Option<Arc<str>>,
    /// `server.error-handler-404`: the URL that responds to requests that failed with 403 or 404.
    pub error_handler_404: Option<Arc<str>>,
    /// `server.errorfile-prefix`: prefix of the paths of error pages, before status and `.html`.
    pub errorfile_prefix: Option<Arc<str>>,
    /// True if local error pages replace a backend's.
    pub error_intercept: bool,
    /// `server.stream-request-body`: how request bodies reach backends.
    pub stream_request_body: StreamBody,
    /// `server.stream-response-body`: how responses of backends reach clients.
    pub stream_response_body: StreamBody,
    /// Bytes of one response held on disk at once.
    pub spool_bytes_max: u64,
    /// `server.follow-symlink`: which symbolic links below the document root are followed.
    pub follow_symlink: Follow,
    /// `server.force-lowercase-filenames`: files are looked up in lower case.
    pub force_lowercase_filenames: bool,
    /// `server.range-requests`: parts of a file are served (206).
    pub range_requests: bool,
    /// `mimetype.assign`: media types by the end of a file's name.
    pub mime: Arc<MimeAssign>,
    /// Full name of the extended attribute that holds a file's media type.
    pub mime_xattr: Option<Arc<str>>,
    /// `mimetype.xattr-name`: the attribute that `mimetype.use-xattr` turns on.
    pub mime_xattr_name: Arc<str>,
    /// `etag.use-inode`: validators depend on the file's inode.
    pub etag_inode: bool,
    /// `etag.use-mtime`: validators depend on the time of the last change.
    pub etag_mtime: bool,
    /// `etag.use-size`: validators depend on the file's size.
    pub etag_size: bool,
    /// `server.http-pathinfo` of the feature flags: a path may continue after a file's name.
    pub pathinfo: bool,
    /// `debug.log-request-handling`: logs each request's handler and physical path.
    pub log_request_handling: bool,
    /// `debug.log-request-header`: logs header fields of requests.
    pub log_request_header: bool,
    /// `debug.log-request-header-on-error`: logs header fields of requests that end in an error.
    pub log_request_header_on_error: bool,
    /// `debug.log-response-header`: logs header fields of responses.
    pub log_response_header: bool,
    /// `debug.log-file-not-found`: logs requests for files that do not exist.
    pub log_file_not_found: bool,
    /// `debug.log-condition-handling`: logs the conditions that hold for a request.
    pub log_condition_handling: bool,
    /// `debug.log-timeouts`: logs each timeout and each low rate, with its directive.
    pub log_timeouts: bool,
    /// Limit on the error-log output of one program; 0 = no limit.
    pub program_log_kbytes_max: u64,
}

impl CoreSettings {
    /// A file's strong validator, from the parts that `etag.use-*` allows.
    pub fn etag_of(&self, meta: &Meta) -> Option<ETag> {
        let parts =
            ETagParts { inode: self.etag_inode, size: self.etag_size, mtime: self.etag_mtime };
        let identity = FileIdentity {
            inode: meta.ino,
            size: meta.size,
            mtime_secs: meta.mtime_s,
            mtime_nanos: meta.mtime_ns,
        };
        ETag::of_file(&identity, parts)
    }
}

impl Default for CoreSettings {
    fn default() -> Self {
        use crate::settings::limits;
        Self {
            document_root: "".into(),
            tag: concat!("lighty/", env!("CARGO_PKG_VERSION")).into(),
            server_name: None,
            max_keep_alive_requests: 1000,
            max_keep_alive_idle_s: 5,
            max_connection_idle_s: 360,
            max_read_idle_s: 60,
            max_write_idle_s: 360,
            max_half_closed_idle_s: 5,
            min_read_rate: 100,
            min_write_rate: 0,
            max_request_bytes: 0,
            places: Places::default(),
            shared_bucket: None,
            connection_kbytes_per_second: 0,
            error_handler: None,
            error_handler_404: None,
            errorfile_prefix: None,
            error_intercept: false,
            stream_request_body: StreamBody::Stream,
            stream_response_body: StreamBody::Stream,
            spool_bytes_max: limits::SPOOL_BYTES_MAX,
            follow_symlink: Follow::All,
            force_lowercase_filenames: false,
            range_requests: true,
            mime: Arc::new(MimeAssign::default()),
            mime_xattr: None,
            mime_xattr_name: "user.Content-Type".into(),
            etag_inode: true,
            etag_mtime: true,
            etag_size: true,
            pathinfo: true,
            log_request_handling: false,
            log_request_header: false,
            log_request_header_on_error: false,
            log_response_header: false,
            log_file_not_found: false,
            log_condition_handling: false,
            log_timeouts: false,
            program_log_kbytes_max: limits::PROGRAM_LOG_KBYTES_MAX,
        }
    }
}
