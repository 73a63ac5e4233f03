//! Settings: the typed outcome of the configuration for one set of matching conditions.
//!
//! A request holds one `Rc<Settings>`; nothing is looked up by name or merged while it is served.

pub mod backtracking;
pub mod cidr;
pub mod directives;
pub mod limits;
pub mod rules;
pub mod tls;

use std::any::{Any, TypeId};
use std::fmt::{self, Debug};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use lighty_http::etag::{ETag, ETagParts, FileIdentity};
use lighty_http::mime::MimeAssign;
use lighty_io::file::{Follow, Meta};
use lighty_io::send::NetworkBackend;

use crate::exchange::throttle::Bucket;
use crate::pipeline::phase::HookTable;

/// Everything that applies to a request. Cloned once per variant, never per request.
#[derive(Clone, Default)]
pub struct Settings {
    /// Set once for the process.
    pub server: ServerSettings,
    /// May be changed by any condition.
    pub core: CoreSettings,
    modules: Vec<(TypeId, Box<dyn Slot>)>,
    /// Distinguishes this variant from all others.
    pub variant: VariantId,
    /// Modules that have work under these settings.
    pub(crate) hook_table: HookTable,
}

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

trait Slot: Any + Debug + Send + Sync {
    fn is_default(&self) -> bool;
    fn boxed_clone(&self) -> Box<dyn Slot>;
}

impl<T: ModuleSettings> Slot for T {
    fn is_default(&self) -> bool {
        format!("{self:?}") == format!("{:?}", T::defaults())
    }
    fn boxed_clone(&self) -> Box<dyn Slot> {
        Box::new(self.clone())
    }
}

impl Clone for Box<dyn Slot> {
    fn clone(&self) -> Self {
        (**self).boxed_clone()
    }
}

/// Values only: two variants with the same values print the same.
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
    pub modules: lighty_config::Strings,
    pub compat_module_load: bool,
    pub bind: Arc<str>,
    /// `None`: 443 over TLS, else 80.
    pub port: Option<u16>,
    /// The listeners without a word of their own speak TLS.
    pub speaks_tls: bool,
    pub use_ipv6: bool,
    pub v6only: bool,
    pub listen_backlog: i32,
    pub defer_accept: bool,
    pub socket_perms: Option<u32>,
    pub systemd_socket_activation: bool,
    pub errorlog: Option<Arc<str>>,
    pub errorlog_use_syslog: bool,
    pub errorlog_level: crate::log::Level,
    pub errorlog_json: bool,
    /// Limit on what all programs together write to the error log; 0 = no limit.
    pub program_log_kbytes_per_second: u64,
    pub syslog_facility: Arc<str>,
    pub chroot: Option<Arc<str>>,
    pub username: Option<Arc<str>>,
    pub groupname: Option<Arc<str>>,
    pub pid_file: Option<Arc<str>>,
    pub core_files: bool,
    pub event_handler: Arc<str>,
    pub network_backend: NetworkBackend,
    pub io_engine: Arc<str>,
    pub stat_cache_engine: Arc<str>,
    pub stat_cache_entries_max: usize,
    pub stat_cache_small_file_bytes: u64,
    pub stat_cache_small_total_bytes: u64,
    /// `None`: one per core.
    pub max_worker: Option<u32>,
    pub pcre_match_limit: u32,
    /// 0: the hard limit.
    pub max_fds: u64,
    /// 0: a third of max-fds.
    pub max_connections: u32,
    pub max_stat_threads: usize,
    pub max_read_threads: usize,
    pub read_chunk_bytes: usize,
    pub use_noatime: bool,
    pub protocol_http11: bool,
    /// HTTP/2 is spoken to who begins with it.
    pub http2: bool,
    pub http2_limits: lighty_wire::http2::Limits,
    pub max_head_time_s: u32,
    pub max_handshake_time_s: u32,
    /// Of one worker; 0: no limit.
    pub max_handshake_backlog: u32,
    pub max_request_field_bytes: usize,
    pub max_request_fields: u32,
    pub max_url_bytes: usize,
    pub parse: lighty_http::uri::ParseOpts,
    /// 0: wait for the last response to be sent.
    pub graceful_shutdown_timeout_s: u32,
    /// How long a tunnel may continue once a graceful stop has begun; 0: no limit.
    pub tunnel_stop_timeout_s: u32,
    pub absolute_dir_redirect: bool,
    pub http10_range: bool,
    pub upload_dirs: lighty_config::Strings,
}

impl ServerSettings {
    /// The port of listeners that name none.
    pub fn default_port(&self) -> u16 {
        self.port.unwrap_or(if self.speaks_tls { 443 } else { 80 })
    }
}

impl Default for ServerSettings {
    fn default() -> Self {
        use crate::settings::limits;
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
            socket_perms: None,
            systemd_socket_activation: true,
            errorlog: None,
            errorlog_use_syslog: false,
            errorlog_level: crate::log::Level::Notice,
            errorlog_json: false,
            program_log_kbytes_per_second: limits::PROGRAM_LOG_KBYTES_PER_SECOND,
            syslog_facility: "daemon".into(),
            chroot: None,
            username: None,
            groupname: None,
            pid_file: None,
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
            tunnel_stop_timeout_s: limits::TUNNEL_STOP_SECONDS,
            absolute_dir_redirect: false,
            http10_range: false,
            upload_dirs: Arc::from([Arc::from("/var/tmp")]),
        }
    }
}

/// How a body is passed between a client and a backend.
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
    pub document_root: Arc<str>,
    /// `Server` field; empty: not sent.
    pub tag: Arc<str>,
    pub server_name: Option<Arc<str>>,
    pub max_keep_alive_requests: u32,
    pub max_keep_alive_idle_s: u32,
    pub max_connection_idle_s: u32,
    pub max_read_idle_s: u32,
    pub max_write_idle_s: u32,
    pub max_half_closed_idle_s: u32,
    /// Bytes per second, 0 = off.
    pub min_read_rate: u32,
    pub min_write_rate: u32,
    /// 0 = no limit.
    pub max_request_bytes: u64,
    /// Shared by all connections of the process to which the same assignment applies.
    pub shared_bucket: Option<Arc<Bucket>>,
    pub connection_kbytes_per_second: u64,
    pub error_handler: Option<Arc<str>>,
    pub error_handler_404: Option<Arc<str>>,
    pub errorfile_prefix: Option<Arc<str>>,
    /// True if local error pages replace a backend's.
    pub error_intercept: bool,
    pub stream_request_body: StreamBody,
    pub stream_response_body: StreamBody,
    /// Bytes of one response held on disk at once.
    pub spool_bytes_max: u64,
    pub follow_symlink: Follow,
    pub force_lowercase_filenames: bool,
    pub range_requests: bool,
    pub mime: Arc<MimeAssign>,
    /// Full name of the extended attribute that holds a file's media type.
    pub mime_xattr: Option<Arc<str>>,
    pub mime_xattr_name: Arc<str>,
    pub etag_inode: bool,
    pub etag_mtime: bool,
    pub etag_size: bool,
    pub pathinfo: bool,
    pub log_request_handling: bool,
    pub log_request_header: bool,
    pub log_request_header_on_error: bool,
    pub log_response_header: bool,
    pub log_file_not_found: bool,
    pub log_condition_handling: bool,
    pub log_timeouts: bool,
    /// Limit on what one program writes to the error log; 0 = no limit.
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
