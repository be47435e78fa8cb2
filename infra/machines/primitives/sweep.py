"""Removes what packet faults left on a machine whose leases ended without their undo: their guards were killed."""

from __future__ import annotations

from typing import Final

from infra.machines.primitives.packets import TIDY

SWEEP: Final = (
    TIDY
    + """
sweep_packets() {   # ends all packet faults whose names begin with $1
    for process in /proc/[0-9]*; do
        grep -zqs -- "^${1}delay_" "$process/cmdline" && kill -s TERM -- "${process#/proc/}"
    done
    command -v iptables > /dev/null && iptables -w 10 -S INPUT 2>/dev/null | while read -r _ rule; do
        case $rule in *" --comment $1"*) iptables -w 10 -D $rule && tidy_iptables ;; esac    # (no spaces in words)
    done
    command -v nft > /dev/null && nft list tables | while read -r _ family table; do
        case $table in "$1"*) ;; *) continue ;; esac
        root=$(nft list table "$family" "$table" | sed -n 's/.*meta priority set \\([0-9a-f]*:\\)1.*/\\1/p')
        [ -n "$root" ] && tc qdisc show | grep "^qdisc htb $root dev" | while read -r _ _ _ _ device _; do
            tc qdisc del dev "$device" root
        done
        nft delete table "$family" "$table"
    done
    return 0
}
"""
)
"""Shell function for `harness clean`."""
