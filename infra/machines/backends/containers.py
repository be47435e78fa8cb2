# SPDX-License-Identifier: Apache-2.0
"""The nodes of the docker backend: containers with one additional capability (NET_ADMIN), never privileged.

Their network is `internal`: nothing routes it off the machine. The image is built here and imported
(`infra.machines.image`), or built on top of `--base-image`. Labels on all objects name the run. The engine itself knows
the owner (`infra.machines.backends.engine_claim`).
"""

from __future__ import annotations

import contextlib
import io
import tarfile
import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from datetime import datetime
from functools import partial
from pathlib import Path
from typing import Any, Final

import docker
import requests
from docker.errors import APIError, DockerException, NotFound
from docker.types import IPAMConfig, IPAMPool, Mount

from infra.machines import kept
from infra.machines.api import Cluster, ClusterSpec, InfraError, Leftover
from infra.machines.backends.docker_image import ensure_image
from infra.machines.backends.engine_claim import EngineClaim, engine_time, is_held, is_kept, mark_kept
from infra.machines.backends.own_container import engine_paths
from infra.machines.backends.owned import (
    HOST_KEY,
    OwnedCluster,
    give_up,
    log,
    make_nodes,
    node_names,
    reach,
    remove_groups,
    remove_images,
)
from infra.machines.control_log import ControlLog
from infra.machines.cpu_share import GROUP, cluster_group
from infra.machines.engine import connect, engine_answers, note_use, was_used
from infra.machines.janitor import Janitor
from infra.machines.keys import ClusterKeys, new_cluster_keys
from infra.machines.network import Subnet, seal_pool, subnets
from infra.machines.ownership import Owner, current, slug, text_is_alive

NAME: Final = "docker"

RUN: Final = "rocketmq-harness.run"
OWNER: Final = "rocketmq-harness.owner"
LAYOUT: Final = "rocketmq-harness.layout"
"""Labels. `owner` is a process of the machine that made it: it helps while the claim does not exist yet, or any more.
`layout` is the version of these labels and names, for a cleanup after a later harness.
"""

_PIDS: Final = 8192
_MEMORY_SHARE: Final = 0.75
_LEAST_MEMORY: Final = 2 << 30
"""The limits of a node, so that a faulty one cannot exhaust the machine: processes, threads included; its share of
three quarters of the engine's memory, but never less than its servers need.
"""

# Docker writes /etc/resolv.conf when the container starts, and its DNS makes unknown names hang for 10 to 20 s. Older
# engines give a node of an internal network a default route all the same: packets for elsewhere die unanswered then.
_COMMAND: Final = (
    "echo nameserver 127.0.0.1 >/etc/resolv.conf; ip route del default 2>/dev/null; mkdir -p /run/sshd; "
    f"exec /usr/sbin/sshd -D -e -h {HOST_KEY} -o UsePAM=no -o UseDNS=no -o PasswordAuthentication=no"
    " -o MaxSessions=100 -o MaxStartups=100"
)
_GONE: Final = (404, 409)
"""Status codes of the engine for a container that is gone, or that another program is removing."""


def provision(spec: ClusterSpec) -> Cluster:
    """See `infra.machines.api.Backend`. The options are the backend's."""
    names = node_names(spec)
    client = connect()
    with _one_line():
        engine = client.version().get("Version", "?")
        image = ensure_image(client, spec.options.base_image if spec.options is not None else None, log.info)
    prefix = _prefix(spec.run_id)
    labels = _labels_of(spec.run_id)
    subnet: Subnet | None = None
    janitor: Janitor | None = None
    claim: EngineClaim | None = None
    with _one_line():
        for container in client.containers.list(all=True, filters={"label": f"{RUN}={spec.run_id}"}):
            raise InfraError(f"run {spec.run_id} has {container.name} already: `harness clean` removes dead runs")

    def tear_down() -> None:
        remove_images(NAME, spec.run_id)
        _sweep(client, spec.run_id)
        if claim is not None:
            _release(claim)
        if subnet is not None:
            subnet.release()
        remove_groups(spec.run_id)
        if janitor is not None:
            janitor.dismiss()
        client.close()

    try:
        note_use()
        janitor = Janitor.start(NAME, spec.run_id)
        seal_pool()
        keys = new_cluster_keys(names)
        with _one_line():
            claim = EngineClaim.take(client, image, prefix, labels)
            subnet = _make_network(client, prefix, spec.run_id, labels)
            addresses = {name: subnet.node(i) for i, name in enumerate(names)}
            paths = engine_paths(client)
            mounts = [Mount(s.path, paths.of(s.source), type="bind", read_only=True) for s in spec.shares]
            machine = client.info()
            memory = _memory_of_a_node(machine, len(names))
            parent = GROUP if machine.get("CgroupDriver") == "cgroupfs" else None  # systemd's names are slices

            def start(name: str) -> None:
                container = client.containers.create(
                    image,
                    ["sh", "-c", _COMMAND],
                    name=f"{prefix}-{name}",
                    hostname=name,
                    init=True,
                    cap_add=["NET_ADMIN"],
                    cgroup_parent=parent,
                    mem_limit=memory,
                    pids_limit=_PIDS,
                    labels=labels,
                    mounts=mounts,
                    network=prefix,
                    networking_config={prefix: client.api.create_endpoint_config(ipv4_address=addresses[name])},
                    extra_hosts=dict(addresses),
                )
                container.put_archive("/", _furniture(keys, name))
                container.start()

            _in_parallel(start, names)
        if parent is not None:
            cluster_group()
        control_log = ControlLog(spec.control_log)
        nodes = make_nodes(addresses, keys, control_log)
        reach(nodes, lambda name: _why_not(client, f"{prefix}-{name}"))
    except BaseException:
        give_up(tear_down)
        raise
    facts = {"backend": NAME, "engine": engine, "image": image, "network": str(subnet.network)}

    def detach(note: str) -> None:
        assert subnet is not None
        assert janitor is not None
        assert claim is not None
        with _one_line():
            mark_kept(client, image, prefix, labels)
        now = {node.name: node.address for node in nodes}
        kept.save(kept.Kept.of(NAME, spec.run_id, now, keys, facts, note))
        subnet.release()  # its route marks it as taken
        janitor.dismiss()
        _release(claim)
        client.close()

    return OwnedCluster(
        NAME, spec.run_id, nodes, facts, control_log, tear_down, partial(_pid_of, client, prefix), detach
    )


def reuse(spec: ClusterSpec) -> Cluster:
    """See `infra.machines.api.Backend`."""
    known = kept.known(spec.run_id)
    prefix = _prefix(spec.run_id)
    client = connect()
    claim = _claim_kept(client, known.facts.get("image", ""), spec.run_id)
    control_log = ControlLog(spec.control_log)
    nodes = make_nodes(known.addresses, known.keys, control_log)

    def release_and_close() -> None:
        _release(claim)
        client.close()

    try:
        reach(nodes, lambda name: _why_not(client, f"{prefix}-{name}"))
    except BaseException:
        give_up(release_and_close)
        raise
    return OwnedCluster(
        NAME, spec.run_id, nodes, known.facts, control_log, release_and_close, partial(_pid_of, client, prefix)
    )


def leftovers() -> list[Leftover]:
    """Raises InfraError if an engine that may hold parts of the harness does not answer."""
    answer = engine_answers()
    if not answer.ok:
        if not was_used():
            return []
        raise InfraError(f"what it holds cannot be seen: {answer.reason}")
    with contextlib.closing(connect()) as client, _one_line():
        now = engine_time(client)
        things: dict[str, list[tuple[str, Any]]] = defaultdict(list)
        for kind, thing in _things(client, RUN):
            things[_labels(thing).get(RUN, "")].append((kind, thing))
    return [_leftover(NAME, run_id, found, now) for run_id, found in sorted(things.items())]


def clean(run_id: str) -> None:
    """See `infra.machines.api.Backend`."""
    with contextlib.closing(connect()) as client:
        with _one_line():
            found = list(_things(client, f"{RUN}={run_id}"))
            left = _leftover(NAME, run_id, found, engine_time(client))
        if left.alive:
            raise InfraError(f"run {run_id} is still running{_by(found)}; end it first")
        claim = None
        if left.kept:  # so that no process can begin to use it now
            image = next(thing.attrs["Image"] for kind, thing in found if kind == "container")
            claim = _claim_kept(client, image, run_id)
        try:
            sweep(run_id)
        finally:
            if claim is not None:
                _release(claim)


def sweep(run_id: str) -> int:
    """Removes everything of a run without a question, and returns the number of things found."""
    with contextlib.closing(connect()) as client:
        found = remove_images(NAME, run_id) + _sweep(client, run_id)
    kept.forget(run_id)
    remove_groups(run_id)
    return found


def _prefix(run_id: str) -> str:
    """The prefix of all names of a run."""
    return f"harness-{slug(run_id)}"


def _labels_of(run_id: str) -> dict[str, str]:
    return {RUN: run_id, OWNER: str(current()), LAYOUT: "2"}


def _leftover(backend: str, run_id: str, found: Sequence[tuple[str, Any]], now: datetime) -> Leftover:
    containers = [thing for kind, thing in found if kind == "container"]
    kept_alive = is_kept(containers)
    owned = not kept_alive and any(text_is_alive(_labels(thing).get(OWNER, "")) for _, thing in found)
    what = ", ".join(f"{kind} {thing.name}" for kind, thing in found)
    return Leftover(backend, run_id, what, is_held(containers, now) or owned, kept_alive)


def _by(found: Sequence[tuple[str, Any]]) -> str:
    """The process of this machine that owns a run, as text; empty if none does."""
    owners = [_labels(thing).get(OWNER, "") for _, thing in found]
    living = next((owner for owner in owners if text_is_alive(owner)), None)
    return "" if living is None else f" (process {Owner.parse(living).pid})"


def _claim_kept(client: docker.DockerClient, image: str, run_id: str) -> EngineClaim:
    try:
        with _one_line():
            return EngineClaim.take(client, image, _prefix(run_id), _labels_of(run_id))
    except InfraError as problem:
        raise InfraError(f"the kept cluster {run_id}: {problem}") from None


def _release(claim: EngineClaim) -> None:
    with _one_line():
        claim.release()


def _memory_of_a_node(machine: Mapping[str, Any], nodes: int) -> int:
    """The memory of a node in bytes, from the engine's report of its machine; 0 (no limit) without such a report."""
    total = int(machine.get("MemTotal") or 0)
    return max(_LEAST_MEMORY, int(total * _MEMORY_SHARE / nodes)) if total else 0


def _make_network(client: docker.DockerClient, name: str, run_id: str, labels: Mapping[str, str]) -> Subnet:
    for subnet in subnets(run_id):
        ipam = IPAMConfig(pool_configs=[IPAMPool(subnet=str(subnet.network), gateway=subnet.control)])
        try:
            client.networks.create(
                name, driver="bridge", internal=True, ipam=ipam, labels=dict(labels), check_duplicate=True
            )
        except APIError as e:
            subnet.release()
            if "overlap" not in str(e).lower():
                raise
        except BaseException:
            subnet.release()
            raise
        else:
            return subnet
    raise AssertionError("unreachable: subnets() raises when it runs out")


def _furniture(keys: ClusterKeys, name: str) -> bytes:
    """A tar of the files that a node gets before it starts: the authorized keys, and its host key."""
    data = io.BytesIO()
    with tarfile.open(fileobj=data, mode="w") as tar:
        folder = tarfile.TarInfo("root/.ssh")
        folder.type, folder.mode = tarfile.DIRTYPE, 0o700
        tar.addfile(folder)
        for path, content in (
            ("root/.ssh/authorized_keys", keys.authorized_keys),
            (HOST_KEY.lstrip("/"), keys.hosts[name].private),
        ):
            info = tarfile.TarInfo(path)
            info.mode, info.size, info.mtime = 0o600, len(content), int(time.time())
            tar.addfile(info, io.BytesIO(content))
    return data.getvalue()


def _why_not(client: docker.DockerClient, name: str) -> str | None:
    """The reason why a container will never answer: it ended, with these last words; None if it runs."""
    try:
        container = client.containers.get(name)
        if container.status in ("created", "running", "restarting"):
            return None
        output = container.logs(tail=1).decode(errors="replace").strip()
    except (DockerException, requests.RequestException):
        return None  # the engine is busy; the deadline judges
    return f"its container is {container.status}: {output or 'it printed nothing'}"


def _pid_of(client: docker.DockerClient, prefix: str, name: str) -> int:
    """A node's first process. Raises InfraError if the engine is not on this machine."""
    with _one_line():
        pid = int(client.containers.get(f"{prefix}-{name}").attrs["State"]["Pid"])
    try:
        known_as = Path(f"/proc/{pid}/root/etc/hostname").read_text().strip()
    except OSError:
        known_as = ""
    if known_as != name:
        raise InfraError(
            f"{name}: its container is not on this machine: use an engine that runs here, or --cluster local"
        )
    return pid


def _things(client: docker.DockerClient, label: str) -> Iterator[tuple[str, Any]]:
    """Containers, then networks, with a label (`KEY` or `KEY=VALUE`)."""
    for container in client.containers.list(all=True, filters={"label": label}, ignore_removed=True):
        yield "container", container
    for network in client.networks.list(filters={"label": label}):
        yield "network", network


def _labels(thing: Any) -> Mapping[str, str]:
    attrs: Mapping[str, Any] = thing.attrs
    return attrs.get("Labels") or attrs.get("Config", {}).get("Labels") or {}


def _sweep(client: docker.DockerClient, run_id: str) -> int:
    """Removes the run's containers (in any state), then its networks, and returns the number of things."""
    with _one_line():
        found = list(_things(client, f"{RUN}={run_id}"))
        containers = [thing for kind, thing in found if kind == "container"]
        if containers:
            _in_parallel(_remove_container, containers)
        for kind, thing in found:
            if kind == "network":
                _remove_network(thing)
    return len(found)


def _remove_container(container: Any) -> None:
    try:
        container.remove(force=True, v=True)
    except APIError as e:
        if e.status_code not in _GONE:
            raise
        with contextlib.suppress(NotFound):
            container.wait(condition="removed", timeout=30)


def _remove_network(network: Any) -> None:
    for attempt in range(10):
        try:
            network.remove()
        except NotFound:
            return
        except APIError as e:
            if "active endpoints" not in str(e) or attempt == 9:
                raise
            time.sleep(0.2)  # the last container's end of it is still being taken down
        else:
            return


def _in_parallel(work: Callable[[Any], None], items: Sequence[Any]) -> None:
    """Calls `work` for all at once; all have finished, or failed, when this returns or raises (the first failure)."""
    with ThreadPoolExecutor(len(items)) as pool:
        futures = [pool.submit(work, item) for item in items]
    for future in futures:
        future.result()


@contextlib.contextmanager
def _one_line() -> Iterator[None]:
    """Raises InfraError for a request that the engine refuses, and for the loss of the engine."""
    try:
        yield
    except APIError as e:
        reason = " ".join(str(e.explanation or e).split())
        raise InfraError(f"the Docker engine rejected the request: {reason}") from e
    except (DockerException, requests.RequestException) as e:
        raise InfraError(f"the Docker engine does not answer any more: {' '.join(str(e).split())}; see its log") from e
