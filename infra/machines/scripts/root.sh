#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# One node's file system; then sshd as the node's pid 1 (it reaps orphans, and no signal from inside can end it).
#
#   root.sh DIR ROOTFS [SOURCE TARGET]...
#
# Runs as pid 1 of the node's pid namespace and in its mount namespace. DIR/upper (what the node writes; keys and
# hosts file were put there before) lies over ROOTFS, which all nodes share and none can write to. STDERR is the
# node's log on the control node. DIR.up appears when only sshd is to come: a request for the node's address before
# there is one waits a second for the next ARP request.
set -eu
dir=$1 rootfs=$2
shift 2
root=$dir/root

mount -t overlay overlay -o "nodev,lowerdir=$rootfs,upperdir=$dir/upper,workdir=$dir/work" "$root"

mount -t proc -o nosuid,nodev,noexec proc "$root/proc"
for path in sys sysrq-trigger irq bus fs; do
    [ -e "$root/proc/$path" ] || continue
    mount --bind "$root/proc/$path" "$root/proc/$path"
    mount -o remount,bind,ro,nosuid,nodev,noexec "$root/proc/$path"
done
for path in kcore keys timer_list; do
    [ -e "$root/proc/$path" ] || continue
    mount --bind /dev/null "$root/proc/$path"
done
mount -t sysfs -o ro,nosuid,nodev,noexec sysfs "$root/sys"

mount -t tmpfs -o nosuid,mode=755,size=1m tmpfs "$root/dev"
for device in null zero full random urandom tty; do
    : >"$root/dev/$device"
    mount --bind "/dev/$device" "$root/dev/$device"
done
mkdir "$root/dev/pts" "$root/dev/shm"
mount -t devpts -o nosuid,noexec,newinstance,ptmxmode=0666,mode=0620 devpts "$root/dev/pts"
mount -t tmpfs -o nosuid,nodev,mode=1777 tmpfs "$root/dev/shm"
ln -s pts/ptmx "$root/dev/ptmx"
ln -s /proc/self/fd "$root/dev/fd"
for stream in 0:stdin 1:stdout 2:stderr; do
    ln -s "/proc/self/fd/${stream%%:*}" "$root/dev/${stream#*:}"
done
mount -t tmpfs -o nosuid,nodev,mode=755 tmpfs "$root/run"
mkdir "$root/run/sshd"

while [ $# -ge 2 ]; do
    mkdir -p "$root$2"
    mount --bind "$1" "$root$2"
    mount -o remount,bind,ro "$root$2"
    shift 2
done

: >"$dir.up"
cd "$root"
mkdir -p .outside
pivot_root . .outside
umount -l .outside
rmdir .outside

# What a server and its faults need, and nothing that reaches past the node: no mounts, no devices, no clock.
caps=chown,dac_override,fowner,fsetid,kill,setgid,setuid,setpcap,setfcap,sys_chroot,net_bind_service,net_raw,net_admin
exec env -i PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin \
    setpriv --inh-caps=-all --bounding-set="-all,+$(echo "$caps" | sed 's/,/,+/g')" \
    /usr/sbin/sshd -D -e -h /etc/ssh/ssh_host_ed25519_key -o UsePAM=no -o UseDNS=no -o PasswordAuthentication=no \
    -o MaxSessions=100 -o MaxStartups=100
