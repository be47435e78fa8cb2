#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# One node's network; then its file system (root.sh).
#
#   node.sh SCRIPTS DIR ROOTFS NAME ADDRESS [SOURCE TARGET]...
#
# Runs in network, uts and ipc namespaces of the node's own, still in the switch's mount and pid namespaces: there the
# switch is pid 1, which is how its end of the cable finds it.
set -eu
scripts=$1 dir=$2 rootfs=$3 name=$4 address=$5
shift 5

echo "$name" >/proc/sys/kernel/hostname
echo 1 >/proc/sys/net/ipv6/conf/all/disable_ipv6 2>/dev/null || true # a kernel without IPv6 has nothing to switch off
ip link set lo up
ip link add eth0 type veth peer name "$name" netns 1
nsenter --net=/proc/1/ns/net ip link set "$name" master br0 up
ip addr add "$address/24" dev eth0
ip link set eth0 up

exec unshare --mount --propagation slave --pid --fork --kill-child=KILL sh "$scripts/root.sh" "$dir" "$rootfs" "$@"
