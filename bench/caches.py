"""Caches that only cached.py measures: Varnish, Squid, Apache httpd and Apache Traffic Server.

Each is Debian's, on one core, in memory where it can be, with logs of requests off where they can
be, in front of one backend.  Configurations are in peers/NAME-cache.conf.
"""
import os
import shutil
import subprocess

import rig
import servers

PROGRAMS = {"varnish": ("varnishd", "-V"), "squid": ("squid", "-v"), "httpd": ("apache2", "-v"),
            "ats": ("traffic_server", "-V")}


def start_all(args, names, backend):
    """{name: rig.Running} of the installed ones; one that does not start is left out with a word."""
    running = {}
    for name in names:
        if not program(name):
            rig.say(f"skipped: {name} is not installed ({PROGRAMS[name][0]})")
            continue
        directory = f"{os.path.abspath(args.out)}/servers/{name}-cache"
        shutil.rmtree(directory, ignore_errors=True)
        os.makedirs(directory + "/tmp")
        values = {"DIR": directory, "PORT": rig.free_port(), "BACKEND": backend}
        try:
            argv = COMMANDS[name](program(name), values)
            running[name] = rig.start(name, argv, values["PORT"], directory + "/output")
        except rig.RigError as e:
            rig.say(f"left out: {e}")
    return running


def program(name):
    return shutil.which(PROGRAMS[name][0], path=os.environ["PATH"] + ":/usr/sbin:/sbin")


def versions(names):
    """{name: first line of its version}"""
    said = {}
    for name in names:
        done = subprocess.run([program(name), PROGRAMS[name][1]], capture_output=True, text=True)
        said[name] = (done.stdout + done.stderr).strip().split("\n")[0]
    return said


def varnish(path, values):
    return [path, "-F", "-j", "none", "-n", values["DIR"] + "/tmp", "-a",
            f"127.0.0.1:{values['PORT']}", "-s", "malloc,64m", "-p", "thread_pools=1",
            "-p", "timeout_idle=300", "-f", servers.configure(values, "varnish-cache")]


def squid(path, values):
    os.chmod(values["DIR"], 0o777)
    return [path, "-N", "-f", servers.configure(values, "squid-cache")]


def httpd(path, values):
    os.chmod(values["DIR"] + "/tmp", 0o777)
    return [path, "-D", "FOREGROUND", "-f", servers.configure(values, "httpd-cache")]


ATS_PLACES = {"prefix": "/usr", "exec_prefix": "/usr", "bindir": "/usr/bin", "sbindir": "/usr/sbin",
              "libdir": "/usr/lib/trafficserver", "libexecdir": "/usr/lib/trafficserver/modules",
              "includedir": "/usr/include", "datadir": "@/data", "sysconfdir": "@/etc",
              "localstatedir": "@/tmp", "runtimedir": "@/tmp", "logdir": "@/tmp", "cachedir": "@/tmp"}
ATS_FILES = {
    "records.config": """CONFIG proxy.config.http.server_ports STRING @PORT@:ip-in=127.0.0.1
CONFIG proxy.config.admin.user_id STRING trafficserver
CONFIG proxy.config.exec_thread.autoconfig INT 0
CONFIG proxy.config.exec_thread.limit INT 1
CONFIG proxy.config.accept_threads INT 0
CONFIG proxy.config.log.logging_enabled INT 0
CONFIG proxy.config.http.cache.required_headers INT 0
CONFIG proxy.config.http.keep_alive_no_activity_timeout_in INT 300
CONFIG proxy.config.cache.ram_cache.size INT 64M
CONFIG proxy.config.http.insert_request_via_str INT 0
CONFIG proxy.config.http.insert_response_via_str INT 0
CONFIG proxy.config.diags.debug.enabled INT 0
""",
    "remap.config": "map / http://127.0.0.1:@BACKEND@/\n",
    "storage.config": "@DIR@/tmp 128M\n",
    "cache.config": "dest_ip=127.0.0.1 ttl-in-cache=10m\n",
    "ip_allow.yaml": "ip_allow:\n  - apply: in\n    ip_addrs: 127.0.0.1\n    action: allow\n"
                     "    methods: ALL\n",
}


def ats(path, values):
    directory = values["DIR"]
    os.makedirs(directory + "/etc")
    os.makedirs(directory + "/data")
    for name in os.listdir("/etc/trafficserver"):
        if os.path.isfile("/etc/trafficserver/" + name) and name not in ATS_FILES:
            shutil.copy("/etc/trafficserver/" + name, directory + "/etc")
    for name, text in ATS_FILES.items():
        for key, value in values.items():
            text = text.replace(f"@{key}@", str(value))
        with open(f"{directory}/etc/{name}", "w") as f:
            f.write(text)
    with open(directory + "/runroot.yaml", "w") as f:
        f.writelines(f"{key}: {place.replace('@', directory)}\n" for key, place in ATS_PLACES.items())
    for folder, _, _ in os.walk(directory):
        os.chmod(folder, 0o777)
    return [path, f"--run-root={directory}/runroot.yaml"]


COMMANDS = {"varnish": varnish, "squid": squid, "httpd": httpd, "ats": ats}
