#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Can this machine do what the local backend does? Tried on a scratch folder, in namespaces that end with this process.
#
#   probe.sh SCRATCH          SCRATCH is an empty folder on the file system that holds the cache
#
# Silent when all works; else the last line of STDERR begins with what failed.
set -eu
fail() {
    echo "$1" >&2
    exit 1
}
cd "$1"
mkdir lower upper work root
ip link add br0 type bridge 2>/dev/null || fail "network bridges"
ip link add eth0 type veth peer name n1 2>/dev/null || fail "veth interfaces"
mount -t overlay overlay -o "lowerdir=lower,upperdir=upper,workdir=work" root || fail "overlay mounts"
: >root/file || fail "writing to an overlay mount"
umount root
