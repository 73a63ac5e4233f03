#!/bin/sh
# boot.sh ROOT: systemd as the first process in namespaces that check.sh has made.
set -eu
root=$1
mount --make-rprivate /
mount --bind "$root" "$root"
cd "$root"
mount -t proc proc proc
mount -t sysfs -o ro sysfs sys
mount -t tmpfs -o mode=755 tmpfs run
mount -t tmpfs -o mode=755 tmpfs dev
for device in null zero full random urandom tty; do
    touch "dev/$device"
    mount --bind "/dev/$device" "dev/$device"
done
mkdir dev/pts dev/shm
mount -t devpts -o newinstance,ptmxmode=666 devpts dev/pts
ln -s pts/ptmx dev/ptmx
mount -t cgroup2 cgroup2 sys/fs/cgroup
ip link set lo up
mkdir -p .outside
pivot_root . .outside
umount -l /.outside
rmdir /.outside
exec env -i container=lighty-check PATH=/usr/sbin:/usr/bin:/sbin:/bin /lib/systemd/systemd --log-target=console
