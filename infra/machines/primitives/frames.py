# SPDX-License-Identifier: Apache-2.0
"""A proxy for the frames of chosen links, in a node's own network namespace: no server needs a setting for it.

New connections of a link are redirected to it by nftables (nat), so it must be there before the servers start. It
counts frames by code, and acts on single ones under a lease (`infra/machines/scripts/frames.py`). Both the rules and
the proxy end with the node.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from infra.machines.api import CommandFailed, InfraError, Lease, Node
from infra.machines.primitives.network import TABLE_PREFIX, ipv4
from infra.machines.scripts import text

MARK: Final = 1 << 15
"""The mark of the proxy's own connections. The marks of delayed packets have higher bits."""
PORT: Final = 4799
_CONTROL: Final = "/run/harness-frames"
_TABLE: Final = f"{TABLE_PREFIX}frames"
_TRIAL: Final = f"{TABLE_PREFIX}frames_trial"


@dataclass(frozen=True)
class Link:
    """Connections to some ports: those that the node opens to an address, or those that an address opens to it.

    address  IPv4 of the other end. opens: whether the node opens them.
    """

    address: str
    ports: tuple[int, ...]
    opens: bool


@dataclass(frozen=True)
class Count:
    """The number of frames of a kind that passed the proxy. towards: `server`, or `opener` of the connection."""

    port: int
    kind: str
    code: int
    towards: str
    number: int


@dataclass(frozen=True)
class Report:
    """The report of a node's proxy. fired: (name of the rule, Unix time in ms, the frame's number in it)."""

    counts: Sequence[Count]
    fired: Sequence[tuple[str, int, int]]


def unavailable(node: Node) -> str | None:
    """The reason why a node cannot have the proxy, in one line; None: it can. Tries the rules, then removes them."""
    rules = _table(_TRIAL, [Link("192.0.2.1", (PORT,), True), Link("192.0.2.1", (PORT,), False)])
    try:
        node.run(["python3", "-c", "import select, struct; select.epoll()"])
        node.run(["nft", rules])
        node.run(["nft", f"delete table ip {_TRIAL}"])
    except InfraError as problem:
        return f"{problem}; it needs python3, nftables and the kernel's nat (nft_redir)"
    return None


def start(node: Node, links: Iterable[Link]) -> None:
    """Starts the proxy if none runs, and redirects these links to it, besides earlier ones. Raises InfraError."""
    if not runs(node):
        node.run(["python3", "-c", text("frames.py"), _CONTROL, str(PORT), str(MARK)])
    known = node.run(["nft", "list", "table", "ip", _TABLE], check=False).text
    missing = [link for link in links if not all(_tag(link, port) in known for port in link.ports)]
    if missing:
        node.run(["nft", _table(_TABLE, missing)])


def redirects(node: Node, links: Iterable[Link]) -> bool:
    """True if the proxy runs, and gets all connections of these links."""
    known = node.run(["nft", "list", "table", "ip", _TABLE], check=False).text
    return all(_tag(link, port) in known for link in links for port in link.ports) and runs(node)


def runs(node: Node) -> bool:
    """True if the node's proxy answers."""
    return node.run(_command("report"), check=False).code == 0


def arm(node: Node, name: str, rule: Mapping[str, object], then: Sequence[Sequence[str]], *, ttl_s: float) -> Lease:
    """Acts on frames; see `infra.machines.scripts.frames.Rule`. name: of the rule, unique on the node. then: commands
    that run on the node at the end. Raises InfraError.
    """
    words = [f"{key}={value}" for key, value in rule.items()]
    return node.lease([_command("arm", name, *words)], [_command("disarm", name), *then], ttl_s=ttl_s)


def report(node: Node) -> Report:
    """The counts of the node's proxy since its start. Raises InfraError if none answers."""
    try:
        lines = node.run(_command("report")).text.splitlines()
    except CommandFailed as problem:
        raise InfraError(f"{node.name}: {problem}") from problem
    counts, fired = [], []
    for line in lines:
        word, *rest = line.split()
        if word == "count":
            counts.append(Count(int(rest[0]), rest[1], int(rest[2]), rest[3], int(rest[4])))
        else:
            fired.append((rest[0], int(rest[1]), int(rest[2])))
    return Report(counts, fired)


def _table(name: str, links: Iterable[Link]) -> str:
    """Commands for nft(8). Existing rules of the table stay."""
    lines = [
        f"add table ip {name}",
        f"add chain ip {name} opened {{ type nat hook output priority -100 ; }}",
        f"add chain ip {name} met {{ type nat hook prerouting priority -100 ; }}",
    ]
    for link in links:
        chain, end = ("opened", "daddr") if link.opens else ("met", "saddr")
        lines += [
            f"add rule ip {name} {chain} ip {end} {ipv4(link.address)} tcp dport {port} meta mark != {MARK:#x} "
            f'redirect to :{PORT} comment "{_tag(link, port)}"'
            for port in link.ports
        ]
    return "\n".join(lines)


def _tag(link: Link, port: int) -> str:
    return f"{'to' if link.opens else 'from'} {link.address} {port}."


def _command(*words: str) -> list[str]:
    return ["python3", "-c", text("frames_command.py"), _CONTROL, *words]
