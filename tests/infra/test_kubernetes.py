# SPDX-License-Identifier: Apache-2.0
"""The kubernetes backend against a double of kubectl: pods, commands, leases, and what is left of a dead run."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import kubectl_double
import pytest

from infra.machines.api import Cluster, ClusterSpec, CommandFailed, InfraError, NodeUnreachable, SettingsError, Share
from infra.machines.backends import kubernetes
from infra.machines.backends.kubernetes import KubernetesBackend, KubernetesOptions
from infra.machines.claims import Claim
from infra.machines.image import PACKAGES, SUITE

RUN = "h18c"
NAME = kubernetes._object_name(RUN)
OPTIONS = KubernetesOptions("registry/node:1", "tests", None, pods_within=1)  # type: ignore[arg-type]


@pytest.fixture
def state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    for name, value in kubectl_double.install(tmp_path).items():
        monkeypatch.setenv(name, value)
    monkeypatch.setenv("HARNESS_CACHE", str(tmp_path / "cache"))
    return tmp_path / "state"


@pytest.fixture
def cluster(state: Path, tmp_path: Path) -> Iterator[Cluster]:
    source = tmp_path / "share"
    source.mkdir()
    (source / "tool").write_text("shared\n")
    shares = [Share(source, str(tmp_path / "in-pod"))]
    made = KubernetesBackend().provision(ClusterSpec(RUN, nodes=2, clients=1, shares=shares, options=OPTIONS))
    yield made
    made.destroy()


def test_nodes_are_pods_with_the_right_to_change_their_network(cluster: Cluster, state: Path, tmp_path: Path) -> None:
    assert [(node.name, node.address) for node in cluster.nodes] == [("n1", "10.0.0.1"), ("n2", "10.0.0.2")]
    assert [node.name for node in cluster.clients] == ["c1"]
    assert cluster.nodes[1].run(["sh", "-c", "echo $POD"]).text.strip() == f"{NAME}-1"
    assert (tmp_path / "in-pod" / "tool").read_text() == "shared\n"
    pods = json.loads((state / "StatefulSet.json").read_text())["spec"]
    container = pods["template"]["spec"]["containers"][0]
    assert (pods["replicas"], container["image"]) == (3, "registry/node:1")
    assert container["securityContext"]["capabilities"] == {"add": ["NET_ADMIN"]}
    assert "privileged" not in json.dumps(pods)
    with pytest.raises(InfraError, match="--cluster docker or local is right"):
        cluster.host("n1")
    with pytest.raises(InfraError, match="cannot be kept"):
        cluster.keep("")


def test_the_exit_code_and_the_errors_are_those_of_the_command(cluster: Cluster) -> None:
    node = cluster.nodes[0]
    done = node.run(["sh", "-c", "cat; echo why >&2; exit 7"], stdin=b"in", check=False)
    assert (done.code, done.stdout, done.stderr) == (7, b"in", b"why")
    with pytest.raises(CommandFailed, match="ended with 7: why"):
        node.run(["sh", "-c", "echo why >&2; exit 7"])


def test_a_pod_that_is_gone_is_unreachable(cluster: Cluster, state: Path) -> None:
    (state / "lost").touch()
    with pytest.raises(NodeUnreachable, match=r"n1: kubectl exec failed: Error from server \(NotFound\)"):
        cluster.nodes[0].run(["true"])
    (state / "lost").unlink()


def test_a_lease_ends_at_its_heal_and_with_the_way_to_the_pod(cluster: Cluster, tmp_path: Path) -> None:
    fault, node = tmp_path / "fault", cluster.nodes[0]
    lease = node.lease([["touch", str(fault)]], [["rm", "-f", str(fault)]], ttl_s=60)
    assert fault.exists()
    lease.heal()
    assert not fault.exists()
    node.lease([["touch", str(fault)]], [["rm", "-f", str(fault)]], ttl_s=60)
    node.close()  # kubectl loses its stdin
    end = time.monotonic() + 20
    while fault.exists():
        assert time.monotonic() < end, "the guard did not end the fault"
        time.sleep(0.05)


def test_nothing_is_left_and_a_dead_run_is_cleaned(cluster: Cluster, state: Path) -> None:
    backend = KubernetesBackend()
    (left,) = backend.leftovers()
    assert (left.run_id, left.alive) == (RUN, True)
    with pytest.raises(InfraError, match=f"run {RUN} is still running"):
        backend.clean(RUN)
    cluster.destroy()
    assert backend.leftovers() == []
    assert not (state / "StatefulSet.json").exists()


def test_what_a_killed_program_left_is_found_and_removed(state: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    backend = KubernetesBackend()
    backend.provision(ClusterSpec(RUN, nodes=1, options=OPTIONS))
    kubernetes._RECORDS.claim_of(kubernetes._RECORDS.path_of(RUN)).unlink()  # as if its holder had died
    (left,) = backend.leftovers()
    assert (left.alive, left.what) == (False, f"StatefulSet {NAME} in the namespace tests")
    with pytest.raises(InfraError, match="has pods already"):
        backend.provision(ClusterSpec(RUN, nodes=1, options=OPTIONS))
    backend.clean(RUN)
    assert backend.leftovers() == []
    assert not (state / "StatefulSet.json").exists()
    calls = [json.loads(line) for line in (state / "calls").read_text().splitlines()]
    assert all(call[:2] == ["--namespace", "tests"] for call in calls)


STATUSES: dict[str, Any] = {
    "ErrImagePull: not found": {
        "containerStatuses": [{"state": {"waiting": {"reason": "ErrImagePull", "message": "not found"}}}]
    },
    "does not run within 1 s: 0/3 nodes": {
        "conditions": [{"type": "PodScheduled", "status": "False", "message": "0/3 nodes are available"}]
    },
    "does not run within 1 s: Pending": {"phase": "Pending"},
}


@pytest.mark.parametrize("reason", STATUSES)
def test_a_pod_that_never_runs_is_reported_and_removed(reason: str, state: Path) -> None:
    pod = {"metadata": {"name": f"{NAME}-0"}, "status": STATUSES[reason]}
    (state / "pods.json").write_text(json.dumps({"items": [pod]}))
    with pytest.raises(InfraError, match=reason):
        KubernetesBackend().provision(ClusterSpec(RUN, nodes=1, options=OPTIONS))
    assert not (state / "StatefulSet.json").exists()
    assert KubernetesBackend().leftovers() == []


def test_it_says_what_is_missing(state: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    backend = KubernetesBackend()
    assert backend.probe().ok
    (state / "down").touch()
    assert backend.probe().reason == "kubectl reaches no cluster: The connection to the server was refused"
    monkeypatch.setenv("PATH", "")
    assert backend.probe().reason == "kubectl is not installed"
    with pytest.raises(SettingsError, match="--image NAME"):
        backend.check(KubernetesOptions(), 3, True)
    for wrong in ({"namespace": "A B"}, {"image": "-x"}, {"context": ""}):
        with pytest.raises(ValueError):
            KubernetesOptions(**wrong)  # type: ignore[arg-type]


def test_a_claim_of_another_program_is_respected(state: Path) -> None:
    claim = Claim.take(kubernetes._RECORDS.claim_of(kubernetes._RECORDS.path_of(RUN)))
    try:
        with pytest.raises(InfraError, match="in use by process"):
            KubernetesBackend().provision(ClusterSpec(RUN, nodes=1, options=OPTIONS))
    finally:
        claim.release()


def test_the_image_of_the_page_has_the_programs_of_a_node() -> None:
    page = (Path(__file__).parents[2] / "docs" / "kubernetes.md").read_text()
    box = page.partition("```dockerfile")[2].partition("```")[0]
    words = box.replace("\\\n", " ").partition("--no-install-recommends")[2].partition("&&")[0].split()
    assert words == list(PACKAGES)
    assert f"debian:{SUITE}-slim" in box
