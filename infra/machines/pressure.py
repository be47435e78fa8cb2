# SPDX-License-Identifier: Apache-2.0
"""The resources that a node's machine gives its servers: a small probe on each node writes one line every two seconds.

The line, all figures counted since some start and in whole numbers, `-` where the kernel reports none:

    1795331735123456  812  81532394 0 1204  0 184467  broker=4711:2090554:1106422:15 broker/4733=ReputMessageSer:1803:5
    time (us, UTC)    late PSI cpu, memory, io  steal all  kind=pid:ran (ns):waited:switches kind/thread=name:ran:waited

late      delay in us of a timer of 200 ms, the worst of ten.
PSI       us in which some process waited for a processor, memory, or io (proc(5), `/proc/pressure`).
steal     ticks that a hypervisor took, of `all` (`/proc/stat`).
servers   sums over the threads of `/proc/PID/task/TID/schedstat`: time on a processor, time ready but without one, and
          how often a thread got one. waited / switches is the average wait of a thread that could continue.
threads   of each server the two that ran or waited longest so far, with the first 15 bytes of their names (proc(5),
          `comm`; a blank or a colon in it is written as `_`): a thread that spins is among them.

The probe is a daemon like the servers, its file lies among their logs and is fetched with them. It costs two processes
every two seconds.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Final

from infra.machines.api import InfraError, Node

log = logging.getLogger("infra")

HOME: Final = "/var/lib/harness"
"""The folder of the servers' pid files."""

FILE: Final = "machine.log"

_PROBE: Final = r"""
home=$1
shopt -s nullglob
exec {quiet}<> <(:)     # nothing is written into it: reading with a limit is a sleep that starts no process
while :; do
    worst=0
    for ((i = 0; i < 10; i++)); do
        before=${EPOCHREALTIME/[.,]/}
        read -r -t 0.2 -u "$quiet"
        late=$((${EPOCHREALTIME/[.,]/} - before - 200000))
        ((late > worst)) && worst=$late
    done
    files=()
    names=
    for file in "$home"/*.pid; do
        [ "$file" != "$home/machine.pid" ] && read -r pid _ < "$file" &&
            files+=(/proc/"$pid"/task/*/schedstat) && name=${file##*/} && names+=" $pid=${name%.pid}"
    done
    servers=
    threads=
    ((${#files[@]})) && servers=$(
        grep -sH '' "${files[@]}" |
            awk -F '[/: ]' -v names="$names" '
                BEGIN {
                    n = split(names, pairs, " ")
                    for (i = 1; i <= n; i++) { split(pairs[i], pair, "="); kind[pair[1]] = pair[2] }
                }
                {
                    ran[$3] += $7; waited[$3] += $8; switches[$3] += $9
                    busy = $7 + $8
                    if (busy > most[$3]) {
                        next_most[$3] = most[$3]; next_top[$3] = top[$3]; most[$3] = busy; top[$3] = $5 ":" $7 ":" $8
                    } else if (busy > next_most[$3]) { next_most[$3] = busy; next_top[$3] = $5 ":" $7 ":" $8 }
                }
                END {
                    for (pid in ran)
                        printf " %s=%s:%.0f:%.0f:%.0f", kind[pid], pid, ran[pid], waited[pid], switches[pid]
                    for (pid in top) printf "\n%s:%s", pid, top[pid]
                    for (pid in next_top) printf "\n%s:%s", pid, next_top[pid]
                }'
    )
    while IFS=: read -r pid tid ran waited; do
        [ -n "$waited" ] && read -r name < "/proc/$pid/task/$tid/comm" || continue
        [[ $names =~ " $pid="([^ ]+) ]] && threads+=" ${BASH_REMATCH[1]}/$tid=${name//[ :]/_}:$ran:$waited"
    done 2>/dev/null <<< "${servers#*$'\n'}"
    servers=${servers%%$'\n'*}
    pressure=
    for what in cpu memory io; do
        total=-
        read -r _ _ _ _ total 2>/dev/null < "/proc/pressure/$what"
        total=${total#total=}
        pressure+=" ${total:--}"
    done
    read -r _ user nice system idle iowait irq softirq steal _ < /proc/stat
    all=$((user + nice + system + idle + iowait + irq + softirq + steal))
    echo "${EPOCHREALTIME/[.,]/} $worst$pressure $steal $all$servers$threads"
done
"""


def start_probes(nodes: Sequence[Node]) -> None:
    """Starts one on every node, unless it runs there. A node where that fails is noted: then it has no figures."""

    def start(node: Node) -> None:
        try:
            if node.process(f"{HOME}/machine.pid") is None:
                argv = ["bash", "--norc", "-c", _PROBE, "machine", HOME]
                node.spawn(argv, env={}, log=f"{HOME}/log/{FILE}", pidfile=f"{HOME}/machine.pid")
        except InfraError as problem:
            log.warning("the resources of %s are not measured: %s", node.name, problem)

    with ThreadPoolExecutor(max(1, len(nodes))) as pool:
        list(pool.map(start, nodes))


def own_line(late_s: float) -> str:
    """A line of the same kind about this machine, without servers. `late_s`: the delay of the worst timer."""
    pressure = [_stalled(Path("/proc/pressure") / what) for what in ("cpu", "memory", "io")]
    steal, total = _ticks()
    return f"{time.time_ns() // 1000} {round(late_s * 1e6)} {' '.join(pressure)} {steal} {total}"


def _stalled(file: Path) -> str:
    try:
        return file.read_text().splitlines()[0].rpartition("total=")[2]
    except (OSError, IndexError):
        return "-"


def _ticks() -> tuple[int, int]:
    fields = [int(text) for text in Path("/proc/stat").read_text().splitlines()[0].split()[1:9]]
    return fields[7], sum(fields)
