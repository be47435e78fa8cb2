# SPDX-License-Identifier: Apache-2.0
"""The ssh backend: what it refuses, what it takes, and that it gives all of it back."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.serialization import BestAvailableEncryption, Encoding, PrivateFormat
from loopback_sshd import Sshd

from infra.machines.api import ClusterSpec, InfraError, Share
from infra.machines.backends.ssh import PROGRAMS, Host, SshBackend, SshCluster, SshOptions
from infra.machines.backends.ssh_folders import MARKER, ROOTS
from infra.machines.keys import new_key_pair

NO_JAVA = {name: package for name, package in PROGRAMS.items() if name != "java"}
pytestmark = pytest.mark.nodes
cluster = pytest.mark.cluster
"""For tests that claim a host: that needs root, and file systems of the host's own."""


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A user with nothing in ~/.ssh and an empty cache folder."""
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("HARNESS_CACHE", str(tmp_path / "cache"))
    (tmp_path / ".ssh").mkdir()
    return tmp_path


@pytest.fixture
def key(tmp_path: Path) -> Path:
    path = tmp_path / "key"
    path.write_bytes(new_key_pair().private)
    return path


@pytest.fixture
def host(home: Path) -> Iterator[Sshd]:
    """A machine that the user may log in to and knows."""
    with Sshd(home / "host", private_folders=("/opt", "/var/lib")) as sshd:
        (home / ".ssh" / "known_hosts").write_text(sshd.known_hosts_line)
        (home / ".ssh" / "id_ed25519").write_bytes(sshd.client.private)
        yield sshd


def spec(*hosts: str, run_id: str = "r1", key: Path | None = None, shares: tuple[Share, ...] = ()) -> ClusterSpec:
    return ClusterSpec(run_id, shares=shares, options=SshOptions(tuple(hosts), str(key) if key else None))


@pytest.mark.parametrize(
    ("text", "parsed"),
    [
        ("127.0.0.1", Host("root", "127.0.0.1", 22, "127.0.0.1")),
        ("ann@127.0.0.2:2222", Host("ann", "127.0.0.2", 2222, "127.0.0.2")),
    ],
)
def test_hosts(text: str, parsed: Host) -> None:
    assert Host.parse(text) == parsed
    assert Host.parse(str(parsed)) == parsed


@pytest.mark.parametrize("text", ["", "@h", "h:", "h:0", "h:65536", "a b", "h;id", "-h x", "u@h@h:1:2"])
def test_no_host(text: str) -> None:
    with pytest.raises(InfraError, match="expected \\[user@\\]host\\[:port\\]"):
        Host.parse(text)


def test_a_name_nobody_knows() -> None:
    with pytest.raises(InfraError, match=r"no IPv4 address of 'no-such\.invalid' is known"):
        Host.parse("no-such.invalid")


def test_no_machines_named() -> None:
    with pytest.raises(InfraError, match="name each with --node"):
        SshBackend().provision(spec())


def test_the_same_machine_twice(key: Path) -> None:
    with pytest.raises(InfraError, match=r"are the same machine \(127\.0\.0\.1\)"):
        SshBackend().provision(spec("127.0.0.1", "127.0.0.1:2222", key=key))


def test_no_key_at_all() -> None:
    with pytest.raises(InfraError, match=r"none of .*id_ed25519.* exists; name one with --ssh-key"):
        SshBackend().provision(spec("127.0.0.1"))


def test_keys_that_cannot_be_used(tmp_path: Path) -> None:
    locked, garbage = tmp_path / "locked", tmp_path / "garbage"
    secret = Ed25519PrivateKey.generate()
    locked.write_bytes(secret.private_bytes(Encoding.PEM, PrivateFormat.OpenSSH, BestAvailableEncryption(b"secret")))
    garbage.write_text("no key\n")
    for path, why in (
        (locked, "has a passphrase"),
        (garbage, "not a readable private SSH key"),
        (tmp_path / "none", "cannot read"),
    ):
        with pytest.raises(InfraError, match=why):
            SshBackend().provision(spec("127.0.0.1", key=path))


@pytest.mark.parametrize("path", ["/etc/harness", "/opt/harness", "/opt/harness/../x", "/opt/harness/lib/"])
def test_a_share_outside_of_our_folders(path: str, tmp_path: Path, key: Path) -> None:
    with pytest.raises(InfraError, match="would lie outside of /opt/harness and /var/lib/harness"):
        SshBackend().provision(spec("127.0.0.1", key=key, shares=(Share(tmp_path, path),)))


def test_an_unreachable_host_leaves_no_record(key: Path) -> None:
    backend = SshBackend()
    with pytest.raises(InfraError, match=r"n1: no SSH at 127\.0\.0\.1:1: Connection refused"):
        backend.provision(spec("127.0.0.1:1", key=key))
    assert backend.leftovers() == []


def test_a_damaged_record_is_named(home: Path) -> None:
    (home / "cache" / "ssh").mkdir(parents=True)
    (home / "cache" / "ssh" / "x.json").write_text("{}")
    (left,) = SshBackend().leftovers()
    assert "x.json is not a record of a run" in left.broken


@cluster
def test_what_is_missing_is_named_and_nothing_is_installed(host: Sshd) -> None:
    backend = SshBackend({**NO_JAVA, "no-such-a": "package-a", "no-such-b": "package-b"})
    with pytest.raises(InfraError, match=r"lacks no-such-a, no-such-b; --install would run there: apt-get install pa"):
        backend.provision(spec(host.spec))
    assert backend.leftovers() == []


@cluster
def test_one_run_per_host_and_all_of_it_goes(host: Sshd, home: Path) -> None:
    backend = SshBackend(NO_JAVA)
    first = backend.provision(spec(host.spec, run_id="first"))
    assert first.destructive is False
    node = first.nodes[0]
    assert {node.read(f"{root}/{MARKER}") for root in ROOTS} == {b"first\n"}
    with pytest.raises(InfraError, match="belongs to run first"):
        backend.provision(spec(host.spec, run_id="second"))
    with pytest.raises(InfraError, match="run first has hosts already"):
        backend.provision(spec(host.spec, run_id="first"))
    assert [item.run_id for item in backend.leftovers()] == ["first"]
    server = node.spawn(["sleep", "300"], env={}, log=f"{ROOTS[1]}/log/s", pidfile=f"{ROOTS[1]}/run/s.pid")
    node.run(["nft", "add table inet harness_drop_5e1f; add table inet others_5e1f"])
    try:
        first.destroy()
        first.destroy()
        assert backend.leftovers() == []
        look = host.node()
        assert look.run(["ls", "-A", "/opt", "/var/lib"]).text == "/opt:\n\n/var/lib:\n"
        assert look.run(["kill", "-0", str(server.pid)], check=False).code != 0 or "Z" in _state(server.pid)
        assert "harness_drop_5e1f" not in look.run(["nft", "list", "tables"]).text
        assert "others_5e1f" in look.run(["nft", "list", "tables"]).text
        look.close()
    finally:
        subprocess.run(["nft", "delete table inet others_5e1f"], check=True)


@cluster
def test_a_lease_still_held_is_healed_before_the_end(host: Sshd, home: Path) -> None:
    healed = home / "healed"
    run = SshBackend(NO_JAVA).provision(spec(host.spec))
    lease = run.nodes[0].lease([["true"]], [["touch", str(healed)]], ttl_s=300)
    run.destroy()
    assert healed.exists()
    lease.heal()


@cluster
def test_a_folder_that_is_not_ours_is_left_alone(host: Sshd) -> None:
    backend, look = SshBackend(NO_JAVA), host.node()
    look.write(f"{ROOTS[1]}/precious", b"data")
    with pytest.raises(InfraError, match=r"/var/lib/harness on .* exists and is not the harness's"):
        backend.provision(spec(host.spec))
    assert look.read(f"{ROOTS[1]}/precious") == b"data"
    assert look.run(["ls", "-A", "/opt"]).text == "", "nothing was made on the way"
    assert backend.leftovers() == []
    look.close()


@cluster
def test_a_share_is_sent_once_and_then_only_what_changed(host: Sshd, tmp_path: Path) -> None:
    source = tmp_path / "share"
    (source / "sub").mkdir(parents=True)
    for name in ("same", "changed", "sub/a\nb"):
        (source / name).write_text(name)
    run = SshBackend(NO_JAVA).provision(spec(host.spec, shares=(Share(source, "/opt/harness/lib"),)))
    assert isinstance(run, SshCluster)
    node = run.nodes[0]
    before = node.run(["stat", "-c", "%i", "/opt/harness/lib/same"]).text
    node.run(["sh", "-c", "cd /opt/harness/lib && echo x > changed && echo x > extra"])
    run.copy([Share(source, "/opt/harness/lib")])
    assert node.run(["stat", "-c", "%i", "/opt/harness/lib/same"]).text == before
    assert node.read("/opt/harness/lib/changed") == b"changed"
    assert node.read("/opt/harness/lib/sub/a\nb") == b"sub/a\nb"
    assert "extra" not in node.run(["ls", "/opt/harness/lib"]).text
    run.destroy()


@cluster
def test_a_host_that_is_away_stays_on_record_until_it_is_back(host: Sshd) -> None:
    backend = SshBackend(NO_JAVA)
    run = backend.provision(spec(host.spec))
    host.stop()
    with pytest.raises(InfraError, match="no SSH at"):
        run.destroy()
    assert [item.run_id for item in backend.leftovers()] == ["r1"]
    host.start()
    run.destroy()
    assert backend.leftovers() == []


def _state(pid: int) -> str:
    path = Path(f"/proc/{pid}/stat")
    return path.read_text().rpartition(") ")[2] if path.exists() else ""
