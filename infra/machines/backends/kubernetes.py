# SPDX-License-Identifier: Apache-2.0
"""The kubernetes backend: nodes are the pods of a StatefulSet, reached by `kubectl exec`.

A record in the cache folder names each run's StatefulSet, and a claim (`infra.machines.claims`) shows whether its
control program is alive. So `harness clean` on the same machine removes what a killed program left.

The control program and the clients must reach the addresses of pods: it runs in a pod itself, or on a machine with a
route to them.
"""

from __future__ import annotations

import io
import json
import re
import shutil
import subprocess
import tarfile
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any, ClassVar, Final

from infra.machines.api import Capability, Cluster, ClusterSpec, InfraError, Leftover, NodeHost, SettingsError, Share
from infra.machines.backends.made import MakesMachines
from infra.machines.backends.owned import OwnedCluster, give_up, node_names
from infra.machines.backends.run_records import RunRecords
from infra.machines.claims import Claim, remove_unheld
from infra.machines.control_log import ControlLog
from infra.machines.node import RemoteNode
from infra.machines.ownership import slug
from infra.machines.remote.kubectl import KubectlRemote
from infra.options import Seconds, option

RUN: Final = "rocketmq-harness/run"
CONTAINER: Final = "node"
_RECORDS: Final = RunRecords("kubernetes", "on Kubernetes", ("namespace", "context"))
_NAME: Final = re.compile(r"[a-z0-9]([a-z0-9.-]{0,61}[a-z0-9])?")
_WAITS: Final = ("ContainerCreating", "PodInitializing")
_POLL_S: Final = 0.5
_ASK_S: Final = 30


@dataclass(frozen=True)
class KubernetesOptions:
    """The options of the backend."""

    image: str | None = option(None, "The image of the pods, with the programs of a node (docs/kubernetes.md).")
    namespace: str = option("default", "The namespace of the pods.")
    context: str | None = option(None, "The context of kubectl.  [default: the current one]")
    pods_within: Seconds = option(Seconds(180), "The pods must run within this time.", low=1)

    def __post_init__(self) -> None:
        """Raises ValueError."""
        if not _NAME.fullmatch(self.namespace):
            raise ValueError(f"namespace is {self.namespace!r}; a name such as default is right")
        for word in (self.image, self.context):
            if word is not None and (not word or word.startswith("-")):
                raise ValueError(f"{word!r} is no name of an image or a context")

    @property
    def kubectl(self) -> list[str]:
        """The command with its options."""
        context = ["--context", self.context] if self.context is not None else []
        return ["kubectl", *context, "--namespace", self.namespace]


class PodCluster(OwnedCluster):
    """Pods that the harness made: `destroy` removes all of them."""

    def host(self, name: str) -> NodeHost:
        """Raises InfraError: the machine of a pod belongs to others."""
        raise InfraError(
            f"{name}: file systems and control groups of a pod belong to its machine, which the harness does not "
            "enter; --cluster docker or local is right for this fault"
        )

    def keep(self, note: str) -> None:
        """Raises InfraError."""
        raise InfraError("clusters of pods cannot be kept")


class KubernetesBackend(MakesMachines):
    """See the module, and `infra.machines.api.Backend`."""

    name = "kubernetes"
    Options: ClassVar[type] = KubernetesOptions
    auto_rank: ClassVar[int | None] = None
    keeps: ClassVar[bool] = False

    def probe(self) -> Capability:
        if shutil.which("kubectl") is None:
            return Capability(False, "kubectl is not installed", "install it, and give it a cluster")
        done = _ask(["kubectl", "version", "--request-timeout", "5s"])
        if done.returncode != 0:
            return Capability(False, f"kubectl reaches no cluster: {_last(done)}", "see `kubectl config get-contexts`")
        return Capability(True, "kubectl reaches a cluster")

    def check(self, options: KubernetesOptions, nodes: int, destructive: bool) -> None:
        """Raises SettingsError if no image is given."""
        if options.image is None:
            raise SettingsError("--cluster kubernetes needs an image of the nodes in your registry: --image NAME")

    def provision(self, spec: ClusterSpec) -> Cluster:
        """Raises InfraError with everything removed."""
        options: KubernetesOptions = spec.options or KubernetesOptions()
        self.check(options, spec.nodes, True)
        names, name = node_names(spec), _object_name(spec.run_id)
        record = _RECORDS.path_of(spec.run_id)
        if record.exists():
            raise InfraError(f"run {spec.run_id} has pods already: `harness clean` removes those of dead runs")
        claim = Claim.take(_RECORDS.claim_of(record))
        control_log = ControlLog(spec.control_log)
        nodes: list[RemoteNode] = []

        def tear_down() -> None:
            _delete(options, name)
            record.unlink(missing_ok=True)
            claim.release()

        try:
            _RECORDS.write(record, spec.run_id, namespace=options.namespace, context=options.context)
            _run([*options.kubectl, "apply", "-f", "-"], json.dumps(_manifest(spec.run_id, name, options, len(names))))
            addresses = _await_pods(options, name, names)
            nodes += [
                RemoteNode(
                    node,
                    address,
                    KubectlRemote(node, options.kubectl, f"{name}-{i}", CONTAINER),
                    control_log=control_log,
                    run_id=spec.run_id,
                )
                for i, (node, address) in enumerate(addresses.items())
            ]
            with ThreadPoolExecutor(len(nodes)) as pool:
                list(pool.map(lambda node: _furnish(node, spec.shares), nodes))
        except BaseException:
            give_up(tear_down)
            raise
        facts = {"backend": self.name, "image": str(options.image), "namespace": options.namespace, "pods": name}
        return PodCluster(self.name, spec.run_id, nodes, facts, control_log, tear_down, _no_pid)

    def reuse(self, spec: ClusterSpec) -> Cluster:
        """Raises InfraError: see `PodCluster.keep`."""
        raise InfraError("clusters of pods cannot be kept")

    def leftovers(self) -> list[Leftover]:
        """The runs of this machine whose record is left."""
        return _RECORDS.leftovers(
            lambda noted: f"StatefulSet {_object_name(noted['run_id'])} in the namespace {noted['namespace']}"
        )

    def clean(self, run_id: str) -> None:
        path = _RECORDS.path_of(run_id)
        if not path.exists():
            return
        noted = _RECORDS.read(path)
        try:
            claim = Claim.take(_RECORDS.claim_of(path))
        except InfraError as problem:
            raise InfraError(f"run {run_id} is still running: its pods are {problem}") from None
        try:
            _delete(KubernetesOptions(namespace=noted["namespace"], context=noted["context"]), _object_name(run_id))
            path.unlink(missing_ok=True)
        finally:
            claim.release()
            remove_unheld(_RECORDS.claim_of(path))


def _manifest(run_id: str, name: str, options: KubernetesOptions, count: int) -> dict[str, Any]:
    """The StatefulSet, and the service that it needs."""
    labels = {RUN: slug(run_id)}
    container = {
        "name": CONTAINER,
        "image": options.image,
        # A shell that waits for its child reaps orphans, as an init does.
        "command": ["sh", "-c", "mkdir -p /var/lib/harness /opt/harness; while :; do sleep 3600 & wait $!; done"],
        "securityContext": {"runAsUser": 0, "capabilities": {"add": ["NET_ADMIN"]}},
        "volumeMounts": [{"name": "data", "mountPath": "/var/lib/harness"}],
    }
    pod = {
        "terminationGracePeriodSeconds": 0,
        "automountServiceAccountToken": False,
        "containers": [container],
        "volumes": [{"name": "data", "emptyDir": {}}],
    }
    about = {"name": name, "labels": labels}
    service = {"clusterIP": "None", "selector": labels, "publishNotReadyAddresses": True}
    pods = {
        "serviceName": name,
        "replicas": count,
        "podManagementPolicy": "Parallel",
        "selector": {"matchLabels": labels},
        "template": {"metadata": {"labels": labels}, "spec": pod},
    }
    return {
        "apiVersion": "v1",
        "kind": "List",
        "items": [
            {"apiVersion": "v1", "kind": "Service", "metadata": about, "spec": service},
            {"apiVersion": "apps/v1", "kind": "StatefulSet", "metadata": about, "spec": pods},
        ],
    }


def _await_pods(options: KubernetesOptions, name: str, names: Sequence[str]) -> dict[str, str]:
    """Node -> address of its pod, once all run. Raises InfraError for a pod that will not, or does not in time."""
    deadline = time.monotonic() + options.pods_within
    wanted = {f"{name}-{i}": node for i, node in enumerate(names)}
    while True:
        listed = json.loads(_run([*options.kubectl, "get", "pods", "-o", "json"]))
        pods = {pod["metadata"]["name"]: pod.get("status", {}) for pod in listed.get("items", ())}
        mine = {node: pods.get(pod, {}) for pod, node in wanted.items()}
        found = {node: str(status["podIP"]) for node, status in mine.items() if _runs(status)}
        if len(found) == len(names):
            return found
        waiting = {node: _why_not(status) for node, status in mine.items() if node not in found}
        node, (hopeless, why) = next(
            ((node, reason) for node, reason in waiting.items() if reason[0]), next(iter(waiting.items()))
        )
        if hopeless or time.monotonic() > deadline:
            late = "" if hopeless else f" within {options.pods_within:g} s"
            raise InfraError(f"{node}: its pod does not run{late}: {why}")
        time.sleep(_POLL_S)


def _runs(status: Mapping[str, Any]) -> bool:
    states = status.get("containerStatuses") or [{}]
    return bool(status.get("podIP")) and "running" in states[0].get("state", {})


def _why_not(status: Mapping[str, Any]) -> tuple[bool, str]:
    """(it will never run, the reason)."""
    waiting = (status.get("containerStatuses") or [{}])[0].get("state", {}).get("waiting", {})
    reason = str(waiting.get("reason", ""))
    if reason and reason not in _WAITS:
        hopeless = reason.startswith(("ErrImage", "ImagePull", "InvalidImage", "CrashLoop", "CreateContainer"))
        return hopeless, f"{reason}: {' '.join(str(waiting.get('message', '')).split())[:200]}"
    for condition in status.get("conditions") or ():
        if condition.get("type") == "PodScheduled" and condition.get("status") == "False":
            return False, " ".join(str(condition.get("message", "it is not scheduled")).split())[:200]
    return False, reason or str(status.get("phase", "it does not exist yet"))


def _furnish(node: RemoteNode, shares: Sequence[Share]) -> None:
    """Copies the shares into a pod."""
    node.run(["true"], timeout_s=_ASK_S)
    for share in shares:
        node.run(["mkdir", "-p", "--", share.path])
        data = io.BytesIO()
        with tarfile.open(fileobj=data, mode="w") as tar:
            tar.add(share.source.resolve(), arcname=".")
        packed = data.getvalue()
        node.run(
            ["tar", "-C", share.path, "--no-same-owner", "-xf", "-"],
            stdin=packed,
            timeout_s=_ASK_S + len(packed) / (1 << 20),
        )


def _delete(options: KubernetesOptions, name: str) -> None:
    """Removes the StatefulSet with its pods, and the service. Raises InfraError."""
    common = ["--ignore-not-found", "--wait", "--timeout", "120s"]
    _run([*options.kubectl, "delete", "statefulset,service", name, "--cascade=foreground", *common])


def _no_pid(name: str) -> int:
    raise InfraError(f"{name}: its processes are not on this machine")


def _object_name(run_id: str) -> str:
    return f"harness-{slug(run_id)}".lower()[:50].rstrip("-.")


def _ask(argv: Sequence[str], stdin: str = "") -> subprocess.CompletedProcess[str]:
    try:
        return subprocess.run(
            argv, input=stdin, capture_output=True, text=True, errors="replace", check=False, timeout=_ASK_S * 6
        )
    except FileNotFoundError:
        raise InfraError("kubectl is not installed") from None
    except subprocess.TimeoutExpired:
        raise InfraError(f"kubectl {argv[-1]} did not end within {_ASK_S * 6} s") from None


def _run(argv: Sequence[str], stdin: str = "") -> str:
    """The output of kubectl. Raises InfraError with its last line."""
    done = _ask(argv, stdin)
    if done.returncode != 0:
        raise InfraError(f"kubectl: {_last(done)}")
    return done.stdout


def _last(done: subprocess.CompletedProcess[str]) -> str:
    return ((done.stderr or done.stdout).strip().splitlines() or ["no output"])[-1]
