# SPDX-License-Identifier: Apache-2.0
# Another address for a node. Run by bash on the node, as root.
#
#   move OLD NEW CONTROL PORT TABLE    NEW is the node's address; at OLD it answers only the control program
#   back OLD NEW CONTROL PORT TABLE    as it was before
#
# OLD stays on the interface, as the control program's connection (from CONTROL, to PORT) holds our leases. Both may be
# repeated. The packet rules come first: a peer with a connection to OLD gets no notice of its end, as of a dead machine.

command=$1 old=$2 new=$3 control=$4 port=$5 table=$6

device= bits=
while read -r _ name _ place _; do
    [ "${place%/*}" != "$old" ] || { device=$name bits=${place#*/}; }
done < <(ip -o -4 address show)
[ -n "$device" ] || { echo "no interface has the address $old"; exit 1; }
read -r network _ < <(ip -4 route show dev "$device" proto kernel scope link)
[ -n "$network" ] || { echo "$device has no route to its network"; exit 1; }

prefer() {      # the address from which the node's own connections come
    ip route replace "$network" dev "$device" proto kernel scope link src "$1"
}

case $command in
    move)
        nft "add table inet $table
            delete table inet $table
            add table inet $table
            add chain inet $table input { type filter hook input priority -310; policy accept; }
            add chain inet $table output { type filter hook output priority -310; policy accept; }
            add rule inet $table input ip daddr $old ip saddr $control tcp dport $port accept
            add rule inet $table input ip daddr $old drop
            add rule inet $table output ip saddr $old ip daddr $control tcp sport $port accept
            add rule inet $table output ip saddr $old drop" || exit 1
        ip address replace "$new/$bits" dev "$device" && prefer "$new"
        ;;
    back)
        prefer "$old" || exit 1     # first: with an address go the routes that prefer it
        ip address delete "$new/$bits" dev "$device" 2>/dev/null
        nft "add table inet $table
            delete table inet $table"
        ;;
esac
