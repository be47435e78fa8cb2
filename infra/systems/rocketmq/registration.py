# SPDX-License-Identifier: Apache-2.0
"""The progress of a broker's registration at the controllers, as its node shows it: process, files, log.

A broker requests an id (1012), notes it with a register code in `brokerIdentity-temp`, applies for it (1013), writes
`brokerIdentity` and deletes the other file, registers its address (1003), and runs when its group has a master
(`ReplicasManager`, 5.1.1 to 5.5.0).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Literal

from infra.machines.api import Node
from infra.machines.node import PROCESS_OF
from infra.systems.api import Server
from infra.systems.rocketmq.store.identity import Identity, parse_identity

State = Literal["INITIAL", "REGISTERED", "RUNNING"]

_SCRIPT: Final = (
    PROCESS_OF
    + r"""
pidfile=$1 log=$2 from=$3 identity=$4
if read -r pid started 2>/dev/null < "$pidfile" && [ -n "$started" ] && [ "$(started_of "$pid")" = "$started" ]; then
    echo up
fi
for kind in temp identity; do
    file=$identity
    [ "$kind" = identity ] || file=$identity-temp
    [ ! -e "$file" ] || printf '%s %s
' "$kind" "$(head -c 1000 -- "$file" | tr '
' ' ')"
done
[ -e "$log" ] || exit 0
tail -c "+$((from + 1))" -- "$log" | grep -ao -e "$5" -e "$6" | sort -u | while read -r line; do
    [ "$line" = "$5" ] && echo registered
    [ "$line" = "$6" ] && echo running
done
exit 0
"""
)
_REGISTERED: Final = "First time register broker success"
_RUNNING: Final = "All register process has been done"


@dataclass(frozen=True)
class Registration:
    """up        whether the process runs.
    temp, identity  the content of the two files; None: no such file. torn: a file exists without valid content.
    state     since its last start, by its log: `RUNNING` once its group has a master.
    """

    up: bool
    temp: Identity | None
    identity: Identity | None
    torn: bool
    state: State


def identity_file(server: Server) -> str:
    """The path of a broker's file with its id; with `-temp` behind it, of the one with the id that it applies for."""
    (data,) = server.data_dirs
    return f"{data}/store/brokerIdentity"


def log_size(server: Server) -> int:
    """Bytes of a server's log now. Raises InfraError."""
    size = server.node.run(["stat", "-c", "%s", "--", server.log], check=False).text.strip()
    return int(size) if size.isdecimal() else 0


def look(server: Server, since: int) -> Registration:
    """The present registration. since: `log_size` before the last start. Raises InfraError."""
    return _read(server.node, server.pidfile, server.log, since, identity_file(server))


def _read(node: Node, pidfile: str, log: str, since: int, identity: str) -> Registration:
    about = [pidfile, log, str(since), identity, _REGISTERED, _RUNNING]
    reply = node.run(["bash", "--norc", "-c", _SCRIPT, "look", *about]).text.splitlines()
    files = {word: text for word, _, text in (line.partition(" ") for line in reply) if word in ("temp", "identity")}
    found = {kind: parse_identity(text, temp=kind == "temp") for kind, text in files.items()}
    state: State = "RUNNING" if "running" in reply else "REGISTERED" if "registered" in reply else "INITIAL"
    return Registration(
        "up" in reply, found.get("temp"), found.get("identity"), any(one is None for one in found.values()), state
    )
