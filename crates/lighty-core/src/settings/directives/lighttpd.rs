//! Names known to lighttpd 1.4 or 1.5 but not to this version: planned ones, and names that
//! lighttpd itself removed.

/// Alternatives to modules that are not available yet.
pub const INSTEAD: &[(&str, &str)] = &[
    ("mod_geoip", MAXMINDDB),
    ("mod_mysql_vhost", VHOSTS),
    ("mod_sql_vhost_core", VHOSTS),
    (
        "mod_rrdtool",
        "status.metrics-url has its figures, and many more, for Prometheus and what reads its format, \
         and status.statistics-url as text; a script of the cron service can put them into an RRD",
    ),
    (
        "mod_cml",
        "it asked a Lua script whether a page made before still serves; mod_magnet is there \
         for that",
    ),
];

/// Modules that lighttpd removed, or that are obsolete. They are not planned.
pub const GONE_MODULES: &[&str] = &["mod_cml", "mod_rrdtool"];

/// Directives removed with their module, without an equivalent.
pub const GONE: &[(&str, &str)] = &[
    ("cml.extension", "mod_cml"),
    ("cml.memcache-hosts", "mod_cml"),
    ("cml.memcache-namespace", "mod_cml"),
    ("cml.power-magnet", "mod_cml"),
    ("rrdtool.binary", "mod_rrdtool"),
    ("rrdtool.db-name", "mod_rrdtool"),
];

const MAXMINDDB: &str = "mod_maxminddb reads its successor's databases: maxminddb.db = \
                         \"/var/lib/GeoIP/GeoLite2-Country.mmdb\"";
const VHOSTS: &str = "write the hosts to a file that an `include_shell` makes from the database, \
                      or let evhost.path-pattern or simple-vhost.server-root find them by name";

/// Directives that are not available yet, with their module or alternative.
pub const PLANNED: &[(&str, &str)] = &[
    ("auth.backend.dbi", "mod_auth"),
    ("auth.backend.gssapi.keytab", "mod_auth"),
    ("auth.backend.gssapi.principal", "mod_auth"),
    ("auth.backend.gssapi.store-creds", "mod_auth"),
    ("auth.backend.sasl.opts", "mod_auth"),
    ("mcpage.enable", "mod_mcpage"),
    ("mcpage.memcached-hosts", "mod_mcpage"),
    ("sql-vhost.db", "mod_sql_vhost_core"),
    ("sql-vhost.user", "mod_sql_vhost_core"),
    ("sql-vhost.pass", "mod_sql_vhost_core"),
    ("sql-vhost.sock", "mod_sql_vhost_core"),
    ("sql-vhost.hostname", "mod_sql_vhost_core"),
    ("sql-vhost.select-vhost", "mod_sql_vhost_core"),
    ("sql-vhost.backend", "mod_sql_vhost_core"),
    ("sql-vhost.port", "mod_sql_vhost_core"),
    ("sql-vhost.cache-ttl", "mod_sql_vhost_core"),
    ("sql-vhost.debug", "mod_sql_vhost_core"),
    ("mysql-vhost.db", "mod_mysql_vhost"),
    ("mysql-vhost.user", "mod_mysql_vhost"),
    ("mysql-vhost.pass", "mod_mysql_vhost"),
    ("mysql-vhost.sock", "mod_mysql_vhost"),
    ("mysql-vhost.sql", "mod_mysql_vhost"),
    ("mysql-vhost.hostname", "mod_mysql_vhost"),
    ("mysql-vhost.port", "mod_mysql_vhost"),
    ("geoip.db-filename", "mod_geoip"),
    ("geoip.memory-cache", "mod_geoip"),
    ("vhostdb.mysql", "mod_vhostdb"),
    ("vhostdb.pgsql", "mod_vhostdb"),
    ("server.breakagelog", "the core"),
    ("server.bsd-accept-filter", "the core"),
    ("server.v4mapped", "the core"),
    ("server.ip-transparent", "the core"),
    ("server.chunkqueue-chunk-sz", "the core"),
    ("server.http-parseopt-header-strict", "the core"),
    ("server.http-parseopt-host-strict", "the core"),
    ("server.http-parseopt-host-normalize", "the core"),
    ("server.reject-expect-100-with-417", "the core"),
    ("debug.log-state-handling", "the core"),
    ("debug.log-condition-cache-handling", "the core"),
];

/// Names that lighttpd rejects at start, and their replacements.
pub const REMOVED: &[(&str, &str)] = &[
    ("server.host", "server.bind"),
    ("server.docroot", "server.document-root"),
    ("server.virtual-root", "mod_simple_vhost"),
    ("server.virtual-default-host", "mod_simple_vhost"),
    ("server.virtual-docroot", "mod_simple_vhost"),
    ("server.userid", "server.username"),
    ("server.groupid", "server.groupname"),
    ("server.use-keep-alive", "server.max-keep-alive-requests"),
    ("server.force-lower-case-files", "server.force-lowercase-filenames"),
];
