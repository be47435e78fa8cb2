# SPDX-License-Identifier: Apache-2.0
"""Key pairs of a cluster: one client key, one host key per node, all ed25519 and created in Python.

The keys live as long as the cluster. The control program keeps the client key and pins the host keys that it created,
so it never has to trust an unknown key.
"""

from __future__ import annotations

import io
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import paramiko


@dataclass(frozen=True)
class KeyPair:
    """An ed25519 key pair in OpenSSH's formats.

    private  a private key file (`-----BEGIN OPENSSH PRIVATE KEY-----`), to be written with mode 0600.
    public   one line as in `authorized_keys` or `known_hosts`, without a line end.
    """

    private: bytes = field(repr=False)
    public: str

    @property
    def pkey(self) -> paramiko.PKey:
        """The pair for paramiko: a client key to log in with, or a host key to pin."""
        import paramiko

        return paramiko.Ed25519Key.from_private_key(io.StringIO(self.private.decode("ascii")))


@dataclass(frozen=True)
class ClusterKeys:
    """The keys of one cluster: `client` logs in on every node; `hosts` maps node name to its host key."""

    client: KeyPair
    hosts: Mapping[str, KeyPair]

    @property
    def authorized_keys(self) -> bytes:
        """The content of `authorized_keys` on each node."""
        return f"{self.client.public}\n".encode("ascii")


def new_key_pair(comment: str = "rocketmq-harness") -> KeyPair:
    """A fresh ed25519 pair. `comment` ends the public line; it must be one word."""
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
    from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat, PublicFormat

    if not comment or any(c.isspace() for c in comment):
        raise ValueError(f"a key's comment is one word, not {comment!r}")
    key = Ed25519PrivateKey.generate()
    public = key.public_key().public_bytes(Encoding.OpenSSH, PublicFormat.OpenSSH).decode("ascii")
    private = key.private_bytes(Encoding.PEM, PrivateFormat.OpenSSH, NoEncryption())
    return KeyPair(private, f"{public} {comment}")


def new_cluster_keys(nodes: Iterable[str]) -> ClusterKeys:
    """A client key and a host key for each node name."""
    return ClusterKeys(new_key_pair(), {name: new_key_pair(f"rocketmq-harness-{name}") for name in nodes})
