#!/usr/bin/env bash
# Checks the packages in target/packages as their users would use them; needs root.
#
#     check.sh [lint|debian|rpm|image|static]...     all without a word
#
# lint: lintian and rpmlint. debian: piuparts, and installation, upgrade under load, exchange of the
# variants, removal and purge in a fresh root. rpm: the same in another root. image: a run in podman.
# static: a run in an empty root. Steps of which the tools are missing are SKIPPED, and the exit status
# is 3. MIRROR is the Debian mirror of the root, SUITE its release.
set -euo pipefail
cd "$(dirname "$0")/.."
packages=$PWD/target/packages
mirror=${MIRROR:-http://deb.debian.org/debian}
suite=${SUITE:-bookworm}
work=$(mktemp -d)
status=0
servers=()
cleanup() {
    for server in ${servers[@]+"${servers[@]}"}; do kill "$server" 2>/dev/null || true; done
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

# A root of the distribution, made once: fresh NAME
fresh() {
    if [ ! -e "$work/root.tar" ]; then
        mmdebstrap --quiet --variant=minbase --include=systemd-standalone-sysusers,systemd-standalone-tmpfiles \
            "$suite" "$work/root.tar" "$mirror"
    fi
    mkdir "$work/root-$1"
    tar -C "$work/root-$1" -xf "$work/root.tar"
    mount -t proc proc "$work/root-$1/proc"
}

# The files of a root, without those that package managers write.
listing() {
    (cd "$1" && find . -path ./proc -prune -o -path ./var/lib/dpkg -prune -o -path ./var/cache/apt -prune -o \
        -path ./var/log/apt -prune -o -path ./usr/lib/sysimage/rpm -prune -o -path ./var/lib/rpm -prune -o -print) |
        grep -vxE '\./(var/log/(dpkg|alternatives)\.log|etc/(passwd|group|shadow|gshadow)-?|etc/\.pwd\.lock|root/\.rpmdb.*)' |
        LC_ALL=C sort
}

# Starts the server of a root on a unix socket, with the configuration of the package otherwise.
start_server() {
    local root=$1
    sed -i -e 's|^server.port = 80$|server.bind = "/run/lighty/site.sock"|' -e '/^\$SERVER/,/^}/d' "$root/etc/lighty/lighty.conf"
    echo hello >"$root/srv/www/index.html"
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

# Requests until the file is gone; counts the lost ones.
load() {
    local root=$1 lost=0 count=0
    while [ -e "$work/loading" ]; do
        answers "$root" || lost=$((lost + 1))
        count=$((count + 1))
    done
    echo "$count $lost" >"$work/load"
}

debian() {
    local root deb small newer pid
    have debian mmdebstrap dpkg-deb curl || return 0
    deb=$(echo "$packages"/lighty-full_*.deb)
    small=$(echo "$packages"/lighty-small_*.deb)
    fresh debian
    root=$work/root-debian
    listing "$root" >"$work/before"
    cp "$deb" "$small" "$root/tmp/"
    chroot "$root" dpkg -i "/tmp/$(basename "$deb")"
    start_server "$root"
    pid=$(cat "$root/run/lighty/lighty.pid")

    newer=$work/newer
    dpkg-deb -R "$deb" "$newer"
    sed -i 's/^Version: .*/Version: 999-1/; s/^Provides: .*/Provides: lighty (= 999-1)/' "$newer/DEBIAN/control"
    dpkg-deb --root-owner-group -Zgzip -b "$newer" "$root/tmp/newer.deb" >/dev/null
    touch "$work/loading"
    load "$root" &
    chroot "$root" dpkg -i /tmp/newer.deb
    sleep 1
    rm "$work/loading"
    wait $!
    read -r count lost <"$work/load"
    [ "$lost" = 0 ] || fail "$lost of $count requests were lost by the upgrade of the package"
    grep -q 'site.sock' "$root/etc/lighty/lighty.conf" || fail "the upgrade replaced the configuration"
    if [ "$(cat "$root/run/lighty/lighty.pid")" = "$pid" ]; then
        echo "check.sh: NOTE: the process is the same after the upgrade: lighty ctl upgrade did not take over" >&2
        status=3
    fi
    passed "upgrade of the package under load: $count requests, none lost"

    chroot "$root" dpkg --remove lighty-full
    ! answers "$root" || fail "the server goes on after the removal of its package"
    [ -e "$root/etc/lighty/lighty.conf" ] || fail "the removal deleted the configuration"
    chroot "$root" dpkg -i "/tmp/$(basename "$small")"
    chroot "$root" dpkg --purge lighty-full
    grep -q 'site.sock' "$root/etc/lighty/lighty.conf" || fail "the purge of one variant took the other's configuration"
    chroot "$root" /usr/sbin/lighty -t -f /etc/lighty/lighty.conf
    # A site is the administrator's.
    rm "$root/srv/www/index.html"
    chroot "$root" dpkg --purge lighty-small
    rm "$root/tmp"/*.deb
    listing "$root" >"$work/after"
    diff "$work/before" "$work/after" || fail "the purge left the files above"
    passed "installation, upgrade, removal, exchange of variants and purge leave nothing"

    have debian piuparts || return 0
    gzip -1 -c "$work/root.tar" >"$work/root.tar.gz"
    for deb in "$packages"/*.deb; do
        piuparts -b "$work/root.tar.gz" -d "$suite" -m "$mirror main" --no-eatmydata "$deb" >"$work/piuparts.log" 2>&1 || {
            grep -E 'ERROR|FAIL' -A3 "$work/piuparts.log" >&2
            fail "piuparts $deb"
        }
        passed "piuparts $(basename "$deb")"
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
[ $# -gt 0 ] || set -- lint static image debian rpm
for step in "$@"; do
    case $step in
        lint | debian | image | static) $step ;;
        rpm) rpm_ ;;
        *) fail "there is no step $step" ;;
    esac
done
exit $status
