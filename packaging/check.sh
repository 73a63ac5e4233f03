#!/usr/bin/env bash
# Checks the packages in target/packages as their users would use them; needs root.
#
#     check.sh [lint|debian|boot|rpm|image|static]...     all without a word
#
# lint: lintian and rpmlint. debian: piuparts, and installation, upgrade under load, exchange of the
# variants, removal and purge in a fresh root. boot: the same under systemd, which boots in
# namespaces of its own; the sandbox within the restrictions of the unit. rpm: installation, upgrade
# and removal in another root. image: a run in podman. static: a run in an empty root. Steps of which the tools are missing are SKIPPED, and the exit status
# is 3. MIRROR is the Debian mirror of the roots, SUITE its release, ROOTS a directory that keeps them
# for the next run.
set -euo pipefail
cd "$(dirname "$0")/.."
packages=$PWD/target/packages
mirror=${MIRROR:-http://deb.debian.org/debian}
suite=${SUITE:-bookworm}
work=$(mktemp -d)
roots=${ROOTS:-$work}
status=0
servers=()
cleanup() {
    for server in ${servers[@]+"${servers[@]}"}; do kill "$server" 2>/dev/null || true; done
    if [ -n "${booted:-}" ]; then
        kill -KILL "$booted" 2>/dev/null || true
        wait "$booted" 2>/dev/null || true
        find "$group" -depth -type d -exec rmdir {} + 2>/dev/null || true
    fi
    umount "$work/podman/overlay" 2>/dev/null || true
    for root in "$work"/root-*; do umount "$root/proc" 2>/dev/null || true; done
    rm -rf --one-file-system "$work"
}
trap cleanup EXIT

passed() { echo "check.sh: passed: $*"; }
fail() {
    echo "check.sh: FAILED: $*" >&2
    exit 1
}
have() { # STEP PROGRAM...
    local step=$1 program
    shift
    for program in "$@"; do
        if ! PATH=$PATH:/usr/sbin command -v "$program" >/dev/null; then
            echo "check.sh: SKIPPED: $step: $program is not installed" >&2
            status=3
            return 1
        fi
    done
}

lint() {
    if have lintian lintian; then
        lintian --allow-root --fail-on=error,warning "$packages"/*.deb
        passed "lintian: no error, no warning"
    fi
    if have rpmlint rpmlint; then
        rpmlint -c packaging/rpm/rpmlint.toml "$packages"/*.rpm | tee "$work/rpmlint"
        grep -q ' 0 errors, 0 warnings' "$work/rpmlint" || fail rpmlint
        passed "rpmlint: no error, no warning"
    fi
}

# An archive of a root of the distribution, made once: distribution NAME PACKAGES
distribution() {
    [ -e "$roots/$1.tar" ] || mmdebstrap --quiet --variant=minbase --include="$2" "$suite" "$roots/$1.tar" "$mirror"
}

# A root without systemd: fresh NAME
fresh() {
    distribution root systemd-standalone-sysusers,systemd-standalone-tmpfiles
    mkdir "$work/root-$1"
    tar -C "$work/root-$1" -xf "$roots/root.tar"
    mount -t proc proc "$work/root-$1/proc"
}

# The files of a root, without those that package managers write.
listing() {
    (cd "$1" && find . -path ./proc -prune -o -path ./var/lib/dpkg -prune -o -path ./var/cache/apt -prune -o \
        -path ./var/log/apt -prune -o -path ./usr/lib/sysimage/rpm -prune -o -path ./var/lib/rpm -prune -o -print) |
        grep -vxE '\./(var/log/(dpkg|alternatives)\.log|etc/(passwd|group|shadow|gshadow)-?|etc/\.pwd\.lock|root/\.rpmdb.*)' |
        LC_ALL=C sort
}

free_port() {
    python3 -c 'import socket; print(socket.create_server(("127.0.0.1", 0)).getsockname()[1])'
}

# Adds what packaging/load.py requests to the site of a root: site ROOT BACKEND
site() {
    backend=$2
    echo hello >"$1/srv/www/index.html"
    truncate -s 64M "$1/srv/www/large"
    cat >"$1/etc/lighty/conf.d/check.conf" <<END
server.sandbox = "auto"
\$HTTP["url"] == "/echo" {
    proxy-core.protocol = "http"
    proxy-core.backends = ( "127.0.0.1:$2" )
    proxy-core.upgrade  = "enable"
}
END
}

# Starts the server of a root on a unix socket, with the configuration of the package otherwise.
start_server() {
    local root=$1
    sed -i -e 's|^server.port = 80$|server.bind = "/run/lighty/site.sock"|' -e '/^\$SERVER/,/^}/d' "$root/etc/lighty/lighty.conf"
    site "$root" "$(free_port)"
    chroot "$root" /usr/sbin/lighty -tt -f /etc/lighty/lighty.conf
    chroot --userspec=lighty:lighty "$root" /usr/sbin/lighty -D -f /etc/lighty/lighty.conf &
    servers+=($!)
    for _ in $(seq 100); do
        if answers "$root"; then return; fi
        sleep 0.1
    done
    fail "the installed server does not answer"
}

answers() {
    [ "$(curl --silent --max-time 5 --unix-socket "$1/run/lighty/site.sock" http://localhost/)" = hello ]
}

# Clients until `end_load`: begin_load ADDRESS [COMMAND...], which runs them where the server is.
begin_load() {
    local address=$1
    shift
    touch "$work/loading"
    "$@" python3 packaging/load.py "$address" "$work/loading" "$backend" >"$work/load" &
    load=$!
    sleep 2
}

end_load() { # EVENT
    sleep 2
    rm "$work/loading"
    wait "$load" || fail "$1: $(cat "$work/load")"
    passed "$1: $(cat "$work/load")"
}

# The same package with the version 999: newer PACKAGE FILE
newer() {
    local tree=$work/newer
    rm -rf "$tree"
    dpkg-deb -R "$1" "$tree"
    sed -i 's/^Version: .*/Version: 999-1/; s/^Provides: .*/Provides: lighty (= 999-1)/' "$tree/DEBIAN/control"
    dpkg-deb --root-owner-group -Znone -b "$tree" "$2" >/dev/null
}

# The upgrade of the package in a container without systemd.
upgrade_under_load() {
    local root=$1 deb=$2 pid
    pid=$(cat "$root/run/lighty/lighty.pid")
    newer "$deb" "$root/tmp/newer.deb"
    begin_load "$root/run/lighty/site.sock"
    chroot "$root" dpkg -i /tmp/newer.deb
    end_load "upgrade of the package under load"
    grep -q 'site.sock' "$root/etc/lighty/lighty.conf" || fail "the upgrade replaced the configuration"
    [ "$(cat "$root/run/lighty/lighty.pid")" != "$pid" ] || fail "the old process has not been replaced"
    readlink "/proc/$(cat "$root/run/lighty/lighty.pid")/exe" | grep -q '/usr/sbin/lighty$' || fail "the new process runs the old file"

    # A configuration that the new binary refuses.
    pid=$(cat "$root/run/lighty/lighty.pid")
    echo 'server.unknown-directive = "of another version' >"$root/etc/lighty/conf.d/refused.conf"
    chroot "$root" dpkg -i /tmp/newer.deb 2>&1 | tee "$work/refused"
    rm "$root/etc/lighty/conf.d/refused.conf"
    grep -q 'still has the old binary' "$work/refused" || fail "the package does not say that the upgrade was refused"
    [ "$(cat "$root/run/lighty/lighty.pid")" = "$pid" ] && answers "$root" || fail "the server does not outlive a refused upgrade"
    passed "a configuration that the new binary refuses: the old process goes on"
}

debian() {
    local root deb small
    have debian mmdebstrap dpkg-deb curl python3 || return 0
    deb=$(echo "$packages"/lighty-full_*.deb)
    small=$(echo "$packages"/lighty-small_*.deb)
    fresh debian
    root=$work/root-debian
    listing "$root" >"$work/before"
    cp "$deb" "$small" "$root/tmp/"
    chroot "$root" dpkg -i "/tmp/$(basename "$deb")"
    start_server "$root"
    upgrade_under_load "$root" "$deb"

    chroot "$root" dpkg --remove lighty-full
    ! answers "$root" || fail "the server goes on after the removal of its package"
    [ -e "$root/etc/lighty/lighty.conf" ] || fail "the removal deleted the configuration"
    chroot "$root" dpkg -i "/tmp/$(basename "$small")"
    chroot "$root" dpkg --purge lighty-full
    grep -q 'site.sock' "$root/etc/lighty/lighty.conf" || fail "the purge of one variant took the other's configuration"
    chroot "$root" /usr/sbin/lighty -t -f /etc/lighty/lighty.conf
    # A site is the administrator's.
    rm "$root/srv/www/index.html" "$root/srv/www/large" "$root/etc/lighty/conf.d/check.conf"
    chroot "$root" dpkg --purge lighty-small
    rm "$root/tmp"/*.deb
    listing "$root" >"$work/after"
    diff "$work/before" "$work/after" || fail "the purge left the files above"
    passed "installation, upgrade, removal, exchange of variants and purge leave nothing"

    have debian piuparts || return 0
    gzip -1 -c "$roots/root.tar" >"$work/root.tar.gz"
    for deb in "$packages"/*.deb; do
        piuparts -b "$work/root.tar.gz" -d "$suite" -m "$mirror main" --no-eatmydata "$deb" >"$work/piuparts.log" 2>&1 || {
            grep -E 'ERROR|FAIL' -A3 "$work/piuparts.log" >&2
            fail "piuparts $deb"
        }
        passed "piuparts $(basename "$deb")"
    done
}

# Boots the root with systemd as the first process of namespaces of its own.
boot_root() {
    local root=$1 groups
    groups=$(findmnt -n -o TARGET -t cgroup2 | head -1)
    [ -n "$groups" ] || fail "there are no control groups of version 2"
    group=$groups/lighty-check.$$
    mkdir "$group"
    (
        echo "$BASHPID" >"$group/cgroup.procs"
        exec unshare --mount --pid --fork --uts --ipc --net --cgroup --kill-child=KILL \
            packaging/boot.sh "$root" >"$work/boot.log" 2>&1 </dev/null
    ) &
    booted=$!
    for _ in $(seq 300); do
        first=$(pgrep -P "$booted" || true)
        if [ -n "$first" ] && within systemctl is-system-running 2>/dev/null | grep -qE 'running|degraded'; then return; fi
        sleep 0.2
    done
    fail "systemd does not boot: $(tail -5 "$work/boot.log")"
}

# Runs a command in the booted root.
within() {
    nsenter -t "$first" -m -p -u -i -n -C -r -w env -i PATH=/usr/sbin:/usr/bin:/sbin:/bin LANG=C.UTF-8 "$@"
}

main_pid() { within systemctl show --value -p MainPID lighty.service; }

serves() { [ "$(within curl --silent --max-time 5 http://127.0.0.1/)" = hello ]; }

# Each layer of the sandbox is on, beside the restrictions of the unit: layers_are_on UNIT
layers_are_on() {
    within lighty ctl status --format text --pid-file /run/lighty/lighty.pid >"$work/status"
    sed -n '/^sandbox/,$p' "$work/status" | grep -E 'no_new_privs|capabilities|landlock|seccomp|io_uring' >"$work/layers"
    [ "$(wc -l <"$work/layers")" -ge 5 ] || fail "$1: no layers of the sandbox in: $(cat "$work/status")"
    if grep -wE 'off|partly' "$work/layers"; then fail "$1: the layers above do not protect"; fi
    passed "$1 serves, each layer of the sandbox is on"
}

boot() {
    local root deb pid
    have boot mmdebstrap dpkg-deb unshare nsenter findmnt python3 || return 0
    deb=$(echo "$packages"/lighty-full_*.deb)
    root=$work/root-boot
    distribution boot systemd,systemd-sysv,dbus,needrestart,curl,procps
    mkdir "$root"
    tar -C "$root" -xf "$roots/boot.tar"
    cp "$deb" "$root/var/tmp/lighty.deb"
    newer "$deb" "$root/var/tmp/newer.deb"
    boot_root "$root"

    within dpkg -i /var/tmp/lighty.deb
    ! within systemctl --quiet is-enabled lighty.service || fail "the installation enables the service"
    ! within systemctl --quiet is-active lighty.service || fail "the installation starts the service"
    site "$root" 20001
    within systemctl enable --now lighty.service
    serves || fail "the service does not serve"
    layers_are_on lighty.service
    boot_reloads "$root"
    boot_upgrades "$root"
    boot_crash
    boot_drop_ins
    within dpkg --purge lighty-full
    ! serves || fail "the server goes on after the removal of its package"
    ! within pgrep lighty || fail "the processes above go on after the removal of the package"
    kill "$booted"
    passed "the package under systemd"
}

boot_reloads() {
    local root=$1
    within systemctl reload lighty.service
    echo 'server.unknown-directive = "of another version' >"$root/etc/lighty/conf.d/refused.conf"
    ! within systemctl reload lighty.service 2>/dev/null || fail "a refused reload succeeds"
    within systemctl --quiet is-active lighty.service && serves || fail "the service does not outlive a refused reload"
    pid=$(main_pid)
    within dpkg -i /var/tmp/newer.deb 2>&1 | tee "$work/refused"
    grep -q 'goes on with the old binary' "$work/refused" || fail "the package does not say that the upgrade was refused"
    [ "$(main_pid)" = "$pid" ] && serves || fail "the service does not outlive a refused upgrade"
    rm "$root/etc/lighty/conf.d/refused.conf"
    passed "a refused reload and a refused upgrade leave the service alone"
}

boot_upgrades() {
    local root=$1
    pid=$(main_pid)
    begin_load 127.0.0.1:80 nsenter -t "$first" -n
    within dpkg -i /var/tmp/newer.deb
    end_load "upgrade of the package under systemd, under load"
    [ "$(main_pid)" != "$pid" ] || fail "the old process has not been replaced"
    [ "$(within systemctl show --value -p NRestarts lighty.service)" = 0 ] || fail "systemd has restarted the service"
    layers_are_on "the new process"

    # needrestart finds processes whose files have been replaced. The old process may still end.
    pid=$(main_pid)
    begin_load 127.0.0.1:80 nsenter -t "$first" -n
    within /etc/needrestart/restart.d/lighty.service
    end_load "upgrade by needrestart, under load"
    [ "$(main_pid)" != "$pid" ] || fail "needrestart does not upgrade the service"
    within sh -c 'while [ "$(systemctl show --value -p MainPID lighty.service)" != "$(pgrep -xo lighty)" ]; do sleep 0.2; done'
    if within needrestart -b -l -r l | grep 'SVC: lighty'; then fail "needrestart wants to restart the service"; fi

    within systemctl stop lighty.service
    within dpkg -i /var/tmp/newer.deb
    ! within systemctl --quiet is-active lighty.service || fail "the upgrade starts a stopped service"
    within systemctl mask --quiet lighty.service
    within dpkg -i /var/tmp/newer.deb
    ! within systemctl --quiet is-active lighty.service || fail "the upgrade starts a masked service"
    within systemctl unmask --quiet lighty.service
    within systemctl enable --now lighty.service
    passed "stopped and masked services stay as they are"
}

# Clients wait in the queues of the sockets that systemd has kept.
boot_crash() {
    begin_load 127.0.0.1:80 nsenter -t "$first" -n
    within systemctl kill --kill-whom=main --signal=KILL lighty.service
    sleep 4
    rm "$work/loading"
    wait "$load" || true
    ! grep -q '"refused"' "$work/load" || fail "a crash refuses clients: $(cat "$work/load")"
    serves || fail "the service does not come back"
    passed "a crash refuses nobody: $(cat "$work/load")"
}

boot_drop_ins() {
    local name
    for name in home jit sockets static; do
        within systemctl stop lighty.socket lighty.service
        within sh -c "rm -rf /etc/systemd/system/lighty.service.d && mkdir /etc/systemd/system/lighty.service.d &&
            cp /usr/share/lighty/drop-ins/$name.conf /etc/systemd/system/lighty.service.d/"
        within systemctl daemon-reload
        within systemctl start lighty.service
        serves || fail "the service does not serve with $name.conf"
        layers_are_on "lighty.service with $name.conf"
    done
}

rpm_() {
    local root file rpm
    have rpm mmdebstrap rpm || return 0
    fresh rpm
    root=$work/root-rpm
    # Scripts of RPMs need a user database only; the root has no rpm of its own.
    listing "$root" >"$work/before"
    rpm=(rpm --root "$root" --dbpath /var/lib/rpm)
    # Debian's rpm warns against itself without it.
    if [ -e /etc/debian_version ]; then rpm+=(--force-debian); fi
    for file in "$packages"/*.rpm; do
        "${rpm[@]}" --nodeps -i "$file"
        chroot "$root" /usr/sbin/lighty -tt -f /etc/lighty/lighty.conf
        "${rpm[@]}" --nodeps -U --force "$file"
        "${rpm[@]}" --nodeps -V "$(rpm -qp --qf '%{NAME}' "$file")"
        "${rpm[@]}" -e "$(rpm -qp --qf '%{NAME}' "$file")"
        passed "$(basename "$file"): installation, upgrade, verification, removal"
    done
    # RPM has no purge: directories with data stay. Some directories belong to other packages where
    # RPM is the system's own.
    listing "$root" | grep -vE -e '^\./(var/(log|lib|cache)|run)/lighty$|^\./srv/www$' \
        -e '^\./usr/(lib/sysusers\.d|share/fish|share/fish/vendor_completions\.d|share/zsh|share/zsh/site-functions)$' >"$work/after"
    diff "$work/before" "$work/after" || fail "the removal of the RPM left the files above"
}

image() {
    local engine container
    have image podman runc || return 0
    engine=(podman --root "$work/podman" --runroot "$work/podman-run" --runtime runc --cgroup-manager cgroupfs
        --events-backend file)
    "${engine[@]}" load --quiet -i "$(echo "$packages"/*-image.tar)"
    container=$("${engine[@]}" run -d --pull=never --network none --ulimit nofile=4096:4096 --ulimit nproc=1000:1000 \
        --read-only --tmpfs /run/lighty:U "$("${engine[@]}" images -q)")
    for _ in $(seq 50); do
        if "${engine[@]}" exec "$container" /usr/sbin/lighty ctl status --format text --pid-file /run/lighty/lighty.pid >"$work/status"; then
            break
        fi
        sleep 0.1
    done 2>/dev/null
    grep -q '^pid: 1$' "$work/status" || fail "the health check of the image fails"
    "${engine[@]}" exec "$container" /usr/sbin/lighty load -n 3 -c 1 --expect-status 301 http://127.0.0.1:8080/lighty-health
    "${engine[@]}" stop --time 10 "$container" >/dev/null
    [ "$("${engine[@]}" inspect "$container" --format '{{.State.ExitCode}}')" = 0 ] || fail "the image did not stop in order"
    "${engine[@]}" rm "$container" >/dev/null
    "${engine[@]}" rmi --all --force >/dev/null
    passed "the image is healthy with a read-only root as an ordinary user, serves, and stops in order"
}

static() {
    local archive root
    have static curl || return 0
    archive=$(echo "$packages"/*-static.tar.gz)
    root=$work/root-static
    mkdir -p "$root/www" "$root/run/lighty" "$root/etc" "$root/var/tmp" "$root/proc"
    tar -C "$work" -xzf "$archive"
    cp "$work/$(basename "$archive" .tar.gz)/lighty" "$root/lighty"
    if readelf -d "$root/lighty" | grep NEEDED; then fail "the static binary needs the libraries above"; fi
    echo hello >"$root/www/index.html"
    printf 'web:x:2000:2000::/:/none\n' >"$root/etc/passwd"
    printf 'web:x:2000:\n' >"$root/etc/group"
    chown 2000 "$root/var/tmp" "$root/run/lighty"
    printf '%s\n' 'server.document-root = "/www"' 'server.bind = "/run/lighty/site.sock"' 'server.username = "web"' \
        'index-file.names = ( "index.html" )' >"$root/lighty.conf"
    chroot "$root" /lighty -tt -f /lighty.conf
    chroot "$root" /lighty -D -f /lighty.conf &
    servers+=($!)
    for _ in $(seq 100); do
        if answers "$root"; then
            passed "the static binary serves in an empty root"
            return
        fi
        sleep 0.1
    done
    fail "the static binary does not serve in an empty root"
}

[ "$(id -u)" = 0 ] || fail "only root can make roots of file systems"
[ $# -gt 0 ] || set -- lint static image debian boot rpm
for step in "$@"; do
    case $step in
        lint | debian | boot | image | static) $step ;;
        rpm) rpm_ ;;
        *) fail "there is no step $step" ;;
    esac
done
exit $status
