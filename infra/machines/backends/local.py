# SPDX-License-Identifier: Apache-2.0
"""The local backend: nodes are namespaces of this machine, created only with util-linux and iproute2.

There is one process tree per cluster, started from `infra/machines/scripts/switch.sh`, which describes its structure.
Its root holds a pid namespace. When the root ends, all nodes end, with their file systems, interfaces and packet
filters. The root ends when its stdin ends, which happens when the control program ends. Only a folder remains, and the
janitor removes it.

Two claims (`infra.machines.claims`) are beside each folder: `owner`, held by the program that uses the cluster, and
`keeper`, held by the process that keeps a kept cluster alive.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import ClassVar, Final

from infra.machines import kept, scripts
from infra.machines.api import Capability, Cluster, ClusterSpec, InfraError, Leftover
from infra.machines.backends.made import MakesMachines
from infra.machines.backends.owned import (
    HOST_KEY,
    RESOLV_CONF,
    OwnedCluster,
    give_up,
    hosts_file,
    log,
    make_nodes,
    node_names,
    reach,
    remove_groups,
    remove_images,
)
from infra.machines.claims import Claim, holder, remove_unheld
from infra.machines.control_log import ControlLog
from infra.machines.cpu_share import cluster_group
from infra.machines.image import ensure_rootfs, image_build, image_id, tar_path
from infra.machines.janitor import Janitor
from infra.machines.keys import ClusterKeys, new_cluster_keys
from infra.machines.network import Subnet, seal_pool, subnets
from infra.machines.ownership import Owner, current, digest, slug, text_is_alive
from infra.options import NoOptions
from results.cache import cache_dir
from results.errors import ExpectedError

_SCRIPTS: Final = Path(scripts.__file__).parent
_TOOLS: Final = {"unshare": "util-linux", "nsenter": "util-linux", "ip": "iproute2", "tar": "tar"}
"""Program -> the Debian package that holds it."""
_OWNER: Final = "owner.json"
_LINK_S: Final = 2.0
_NAMESPACES: Final = (
    *("unshare", "--net", "--mount", "--propagation", "slave"),
    *("--pid", "--fork", "--kill-child=KILL", "--mount-proc"),
)


class LocalBackend(MakesMachines):
    """Five nodes in about half a second; needs root. See `infra.machines.api.Backend`."""

    name = "local"
    Options: ClassVar[type] = NoOptions
    auto_rank: ClassVar[int | None] = 2

    def image(self, options: NoOptions) -> str | None:
        """See `infra.machines.api.Imaged`."""
        return image_build()

    def probe(self) -> Capability:
        if os.geteuid() != 0:
            return Capability(
                False, "namespaces with networks of their own need root", "run as root, or use docker or ssh"
            )
        for tool, package in _TOOLS.items():
            if not shutil.which(tool):
                return Capability(False, f"{tool} is not installed", f"`apt-get install {package}`")
        if not tar_path().exists() and not shutil.which("mmdebstrap"):
            return Capability(False, "mmdebstrap, which makes the node image, is not installed", "`make setup`")
        try:
            failed = _try_namespaces()
        except ExpectedError as e:
            return Capability(False, str(e), "set HARNESS_CACHE")
        if failed:
            return Capability(False, f"this machine does not allow {failed}", "use --cluster docker or --cluster ssh")
        return Capability(True, "namespaces, bridges and overlay mounts work")

    def provision(self, spec: ClusterSpec) -> Cluster:
        names = node_names(spec)
        answer = self.probe()
        if not answer.ok:
            raise InfraError(f"local: {answer.reason}: {answer.remedy}")
        rootfs = ensure_rootfs(log.info)
        state = _state_dir() / slug(spec.run_id)
        claim = _claim(state, spec.run_id)
        switch: _Switch | None = None
        subnet: Subnet | None = None
        janitor: Janitor | None = None

        def tear_down() -> None:
            if switch is not None:
                switch.end()
            if subnet is not None:
                subnet.release()
            remove_images(self.name, spec.run_id)
            remove_groups(spec.run_id)
            _remove(state)
            if janitor is not None:
                janitor.dismiss()
            claim.release()

        try:
            janitor = Janitor.start(self.name, spec.run_id)
            seal_pool()
            subnet = next(subnets(spec.run_id))
            addresses = {name: subnet.node(i) for i, name in enumerate(names)}
            keys = new_cluster_keys(names)
            for name in names:
                _furnish(state / name, name, addresses, keys)
            (state / "nodes").write_text("".join(f"{name} {ip}\n" for name, ip in addresses.items()))
            switch = _Switch(state, spec, rootfs, subnet)
            control_log = ControlLog(spec.control_log)
            nodes = make_nodes(addresses, keys, control_log)
            switch.await_namespaces(names)
            reach(nodes, switch.why_not)
        except BaseException:
            give_up(tear_down)
            raise
        facts = {"backend": self.name, "image": image_id(), "network": str(subnet.network), "switch": str(switch.pid)}

        def detach(note: str) -> None:
            assert subnet is not None
            assert janitor is not None
            assert switch is not None
            switch.detach_process()
            now = {node.name: node.address for node in nodes}
            kept.save(kept.Kept.of(self.name, spec.run_id, now, keys, facts, note))
            subnet.release()  # its route marks it as taken
            janitor.dismiss()
            claim.release()

        return OwnedCluster(
            self.name, spec.run_id, nodes, facts, control_log, tear_down, partial(_pid_of, state), detach
        )

    def reuse(self, spec: ClusterSpec) -> Cluster:
        known = kept.known(spec.run_id)
        state = _find(spec.run_id)
        claim = _take(state, f"the kept cluster {spec.run_id} is")
        try:
            if holder(_claims(state, "keeper")) is None:
                raise InfraError(
                    f"the kept cluster {spec.run_id} does not run any more; `harness clean --kept` removes the rest"
                )
            control_log = ControlLog(spec.control_log)
            nodes = make_nodes(known.addresses, known.keys, control_log)
            reach(nodes, lambda name: None)
        except BaseException:
            claim.release()
            raise
        return OwnedCluster(
            self.name, spec.run_id, nodes, known.facts, control_log, claim.release, partial(_pid_of, state)
        )

    def leftovers(self) -> list[Leftover]:
        found = []
        for state in sorted(path for path in _state_dir().iterdir() if path.is_dir()):
            noted = _noted(state)
            keeper, owner = (holder(_claims(state, of)) is not None for of in ("keeper", "owner"))
            owner = owner or (not keeper and text_is_alive(noted.get("owner", "")))
            what = f"nodes in {state}" if keeper or owner or _switch_runs(noted) else f"the folder {state}"
            run_id = noted.get("run_id", state.name)
            found.append(Leftover(self.name, run_id, what, owner, keeper or kept.is_on_record(run_id)))
        return found

    def clean(self, run_id: str) -> None:
        state = _find(run_id)
        claim = _take(state, f"run {run_id} is still running: its nodes are")
        try:
            self.sweep(run_id)
        finally:
            claim.release()

    def sweep(self, run_id: str) -> int:
        """Removes everything of a run without a question, and returns the number of things found. Raises InfraError if
        a kept cluster depends on a process of another PID namespace.
        """
        state = _find(run_id)
        if not state.exists():
            kept.forget(run_id)
            return 0
        for process in (_noted(state).get(name, "") for name in ("switch", "keeper")):
            if text_is_alive(process):
                with contextlib.suppress(ProcessLookupError):
                    os.kill(Owner.parse(process).pid, signal.SIGKILL)
                _wait_until_gone(process)
        if (elsewhere := holder(_claims(state, "keeper"))) is not None:
            raise InfraError(f"its nodes belong to {elsewhere} of another PID namespace: clean it there")
        for of in ("keeper", "owner"):
            remove_unheld(_claims(state, of))
        kept.forget(run_id)
        remove_images(self.name, run_id)
        remove_groups(run_id)
        _remove(state)
        return 1


class _Switch:
    """The root process of a cluster. It lives as long as the harness' end of its stdin."""

    def __init__(self, state: Path, spec: ClusterSpec, rootfs: Path, subnet: Subnet) -> None:
        self._state = state
        shares = [word for share in spec.shares for word in (str(share.source.resolve()), share.path)]
        self._uplink = f"jx-{digest(spec.run_id)[:8]}"
        script = [str(_SCRIPTS / "switch.sh"), str(_SCRIPTS), str(state), str(rootfs), self._uplink, subnet.control]
        # fd 9: lets the switch, in its own network, put the other end of a cable into this machine's network.
        enter = 'exec 9</proc/self/ns/net; [ -z "$1" ] || echo $$ >"$1/cgroup.procs"; shift; exec "$@"'
        argv = ["sh", "-c", enter, "sh", str(cluster_group("local") or ""), *_NAMESPACES, "sh", *script, *shares]
        with (state / "switch.log").open("ab") as out:
            self._process = subprocess.Popen(
                argv, stdin=subprocess.PIPE, stdout=out, stderr=out, cwd="/", start_new_session=True
            )
        _note(state, {**_noted(state), "switch": str(Owner.of(self._process.pid) or "")})

    @property
    def pid(self) -> int:
        return self._process.pid

    def why_not(self, name: str) -> str | None:
        """The reason why a node will never come up: the last words of the switch, or of the node; None while it may."""
        if self._process.poll() is not None:
            return f"the switch ended with {self._process.returncode}: {_last_line(self._state / 'switch.log')}"
        if (self._state / f"{name}.ended").exists():
            return _last_line(self._state / f"{name}.log")
        return None

    def await_namespaces(self, names: Sequence[str], timeout_s: float = 30) -> None:
        """Waits until every node has its network and its files. Raises InfraError with its last words."""
        until = time.monotonic() + timeout_s
        for name in names:
            while not (self._state / f"{name}.up").exists():
                reason = self.why_not(name)
                if reason is None and time.monotonic() > until:
                    reason = f"not ready within {timeout_s:.0f} s: {_last_line(self._state / f'{name}.log')}"
                if reason is not None:
                    raise InfraError(f"{name} did not come up: {reason}")
                time.sleep(0.005)

    def detach_process(self) -> None:
        """Passes the harness' end of its stdin to a process that only holds it."""
        assert self._process.stdin is not None
        end = self._process.stdin.fileno()
        claim = Claim.take(_claims(self._state, "keeper"))
        lock = claim.leave()
        # A reader of the run's output to its end must not wait for the keeper.
        keeper = subprocess.Popen(
            ["sleep", "infinity"],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            pass_fds=(end, lock),
            cwd="/",
            start_new_session=True,
        )
        os.close(lock)
        _note(self._state, {**_noted(self._state), "keeper": str(Owner.of(keeper.pid) or "")})
        self._process.stdin.close()

    def end(self) -> None:
        """Closes its stdin, and waits for its end with all its nodes; kills it if it does not end.

        Its link goes a little later: the kernel removes a network that has no processes when it has time.
        """
        assert self._process.stdin is not None
        self._process.stdin.close()
        try:
            self._process.wait(5)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        until = time.monotonic() + _LINK_S
        while Path("/sys/class/net", self._uplink).exists() and time.monotonic() < until:
            time.sleep(0.005)


def _pid_of(state: Path, name: str) -> int:
    """The process of this machine that is a node's pid 1. Raises InfraError."""
    upper = f"upperdir={state / name / 'upper'},"
    for process in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):  # it has ended meanwhile
            numbers = re.search(r"^NSpid:.*\t(\d+)$", (process / "status").read_text(), re.MULTILINE)
            if numbers and numbers[1] == "1" and upper in (process / "mountinfo").read_text():
                return int(process.name)
    raise InfraError(f"{name}: its first process is not to be seen from here")


def _furnish(folder: Path, name: str, addresses: Mapping[str, str], keys: ClusterKeys) -> None:
    """Makes the node's folders, and its own files over the image: keys, names."""
    upper = folder / "upper"
    for place in (folder / "work", folder / "root", upper / "etc" / "ssh"):
        place.mkdir(parents=True)
    ssh = upper / "root" / ".ssh"
    ssh.mkdir(parents=True)
    for place, mode in ((upper, 0o755), (upper / "etc", 0o755), (upper / "etc/ssh", 0o755)):
        place.chmod(mode)  # the upper folder's rights hide the image's
    for place in (upper / "root", ssh):
        place.chmod(0o700)
    files = {
        ssh / "authorized_keys": (keys.authorized_keys, 0o600),
        upper / HOST_KEY.lstrip("/"): (keys.hosts[name].private, 0o600),
        upper / "etc/hosts": (hosts_file(addresses), 0o644),
        upper / "etc/hostname": (f"{name}\n".encode(), 0o644),
        upper / "etc/resolv.conf": (RESOLV_CONF, 0o644),
    }
    for path, (data, mode) in files.items():
        path.write_bytes(data)
        path.chmod(mode)


def _try_namespaces() -> str | None:
    """The part of the namespaces that fails on this machine, found by a trial on a scratch folder; None: none."""
    _state_dir()
    with tempfile.TemporaryDirectory(prefix="probe-", dir=cache_dir()) as scratch:
        argv = [*_NAMESPACES, "sh", str(_SCRIPTS / "probe.sh"), scratch]
        try:
            done = subprocess.run(argv, capture_output=True, text=True, timeout=30, check=False)
        except subprocess.TimeoutExpired:
            return "new namespaces (no end after 30 s)"
    if done.returncode == 0:
        return None
    return (done.stderr.strip().splitlines() or [f"new namespaces (exit code {done.returncode})"])[-1]


def _state_dir() -> Path:
    """The parent of the runs' folders. Its path goes into overlay's mount options, which have no reliable escapes."""
    folder = cache_dir() / "local"
    if any(c in str(folder) for c in ",:\\\"' \n"):
        raise InfraError(
            f"the cache folder {cache_dir()} has a character that mount options cannot hold: set HARNESS_CACHE"
        )
    folder.mkdir(mode=0o700, exist_ok=True)
    return folder


def _claims(state: Path, of: str) -> Path:
    """The path of the claim on a cluster: outside of the cluster's folder, so that the claim may outlive it."""
    return cache_dir() / "claims" / f"local-{state.name}.{of}"


def _take(state: Path, who: str) -> Claim:
    try:
        return Claim.take(_claims(state, "owner"))
    except InfraError as problem:
        raise InfraError(f"{who} {problem}") from None


def _claim(state: Path, run_id: str) -> Claim:
    """Makes the run's folder, and returns its claim. Raises InfraError if the folder exists already."""
    already = f"run {run_id} has nodes here already"
    claim = _take(state, f"{already}: they are")
    try:
        state.mkdir(mode=0o700)
        _note(state, {"run_id": run_id, "owner": str(current())})
    except BaseException as problem:
        claim.release()
        if isinstance(problem, FileExistsError):
            raise InfraError(f"{already}: `harness clean` removes those of dead runs") from None
        raise
    return claim


def _note(state: Path, noted: Mapping[str, str]) -> None:
    partial = state / f"{_OWNER}.new"
    partial.write_text(json.dumps(dict(noted)))
    partial.rename(state / _OWNER)


def _noted(state: Path) -> dict[str, str]:
    try:
        noted = json.loads((state / _OWNER).read_text())
    except (OSError, ValueError):
        return {}
    return noted if isinstance(noted, dict) else {}


def _find(run_id: str) -> Path:
    """The run's folder; for a folder whose notes are lost, the run id is the folder's name."""
    plain = _state_dir() / slug(run_id)
    named = _state_dir() / Path(run_id).name
    return named if not plain.exists() and run_id and named.is_dir() else plain


def _switch_runs(noted: Mapping[str, str]) -> bool:
    return text_is_alive(noted.get("switch", ""))


def _wait_until_gone(owner: str, timeout_s: float = 10) -> None:
    until = time.monotonic() + timeout_s
    while text_is_alive(owner):
        if time.monotonic() > until:
            raise InfraError(f"process {Owner.parse(owner).pid} does not end although it was killed")
        time.sleep(0.01)


def _remove(state: Path) -> None:
    """Removes the folder. Nothing is mounted in it outside of the switch's own mount namespace, which is gone."""
    for attempt in range(20):
        shutil.rmtree(state, ignore_errors=True)
        if not state.exists():
            return
        time.sleep(0.05 * (attempt + 1))  # a node that is just dying may still have written something
    raise InfraError(f"cannot remove {state}: is something still running in it?")


def _last_line(path: Path) -> str:
    try:
        lines = [line.strip() for line in path.read_text(errors="replace").splitlines()]
    except OSError:
        lines = []
    # mount(8) ends its complaints with a hint at dmesg
    return next((line for line in reversed(lines) if line and "dmesg(1)" not in line), "it printed nothing")
