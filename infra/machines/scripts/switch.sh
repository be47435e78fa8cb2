#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# The switch of one local cluster, and the process all of it hangs on.
#
#   switch.sh SCRIPTS STATE ROOTFS UPLINK CONTROL [SOURCE TARGET]...
#
# Started in fresh network, mount and pid namespaces as their pid 1, with
#   stdin   a pipe from the control program: its end is the cluster's end;
#   fd 9    the control program's network namespace.
# STATE/nodes holds one line "NAME ADDRESS" per node. UPLINK is the name of the control node's interface, CONTROL its
# address. Each SOURCE is seen read-only by every node at TARGET.
#
# When this process ends, however it ends, the kernel kills every process of its pid namespace, and with the last of
# them the nodes' file systems, interfaces and packet filters are gone. Nothing has to be undone by anyone.
set -eu
scripts=$1 state=$2 rootfs=$3 uplink=$4 control=$5
shift 5

# A bridge in a namespace of its own: the machine's own packet filter (Docker drops what is forwarded) never sees
# the nodes' traffic, and without an uplink to anything but the control node none of it can leave the machine.
ip link set lo up
ip link add br0 type bridge
ip link set br0 up
ip link add uplink0 type veth peer name "$uplink" netns /proc/self/fd/9
ip link set uplink0 master br0 up
nsenter --net=/proc/self/fd/9 ip addr add "$control/24" dev "$uplink"
nsenter --net=/proc/self/fd/9 sh -c 'echo 0 >"/proc/sys/net/ipv4/conf/$1/forwarding"' sh "$uplink"
nsenter --net=/proc/self/fd/9 ip link set "$uplink" up

# A node that ends says so in STATE/NAME.ended: then there is nothing to wait for any more.
while read -r name address; do
    {
        unshare --net --uts --ipc sh "$scripts/node.sh" "$scripts" "$state/$name" "$rootfs" "$name" "$address" "$@" ||
            echo "$?" >"$state/$name.ended"
    } </dev/null >"$state/$name.log" 2>&1 9<&- &
done <"$state/nodes"
exec 9<&-

cat >/dev/null
