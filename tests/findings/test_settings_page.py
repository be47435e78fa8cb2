# SPDX-License-Identifier: Apache-2.0
"""docs/settings.md: each setting that the harness writes into a file of a server has a reason, and is on the page."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from pathlib import Path

import pytest
from noting_nodes import NotingCluster, noting_nodes

from infra.options import parse
from infra.systems.api import ServerSettings
from infra.systems.rocketmq.servers import settings
from infra.systems.rocketmq.topologies.acting_master import ActingMasterTopology
from infra.systems.rocketmq.topologies.base import RocketmqTopology
from infra.systems.rocketmq.topologies.controller import ControllerTopology
from infra.systems.rocketmq.topologies.dledger_commitlog import DledgerCommitlogTopology
from infra.systems.rocketmq.topologies.master_slave import MasterSlaveTopology
from infra.systems.settings import Default
from rocketmq_harness.advice import harness_settings
from rocketmq_harness.advice.harness_settings import GROUPS, Scope, restoring, scope

DOCS = Path(__file__).parents[2] / "docs"
OF_ONE_GROUP = {"totalReplicas", "inSyncReplicas"}
"""Settings that a topology derives from the size of a group; the page names them."""

SHOWN = {(kind, name) for kind, group in GROUPS.values() for name in group}


def test_the_page_is_made_from_the_code() -> None:
    made = harness_settings.page(DOCS)
    assert (DOCS / harness_settings.PAGE).read_text() == made, "make it: rocketmq_harness.advice.harness_settings docs"


def test_each_setting_has_a_reason_and_a_kind() -> None:
    for kind, group in GROUPS.values():
        for name, default in group.items():
            assert default.why.strip(), f"{kind}.{name} has no reason (infra/systems/rocketmq/servers/settings.py)"
            assert "|" not in default.why
            assert scope(name) is not None, f"{kind}.{name} has no kind (rocketmq_harness/advice/harness_settings.py)"


def test_no_table_of_the_code_is_missing_on_the_page() -> None:
    tables = [table for name, table in vars(settings).items() if name.isupper() and isinstance(table, Mapping)]
    names = {name for table in tables for name, default in table.items() if isinstance(default, Default)}
    assert len(names) > 60
    assert names == {name for _, name in SHOWN}


@pytest.mark.parametrize(
    ("topology", "options"),
    [
        (ControllerTopology, {}),
        (ControllerTopology, {"controller_type": "jraft"}),
        (ControllerTopology, {"controller_type": "dledger-embedded"}),
        (DledgerCommitlogTopology, {}),
        (MasterSlaveTopology, {}),
        (ActingMasterTopology, {}),
    ],
)
@pytest.mark.parametrize("profile", ["strict", "default"])
def test_what_a_topology_writes_is_on_the_page(
    topology: type[RocketmqTopology], options: Mapping[str, object], profile: str
) -> None:
    given = ServerSettings(profile=profile)  # type: ignore[arg-type]
    made = topology(given, parse(topology.Options, options, "options"))
    made.attach(NotingCluster(noting_nodes(5)))  # type: ignore[arg-type]
    written = {
        (kind, name) for place in made._places.values() for kind in place.kinds for name in made.configured(kind, place)
    }
    # Controllers that run in name servers read the controllers' settings from the name servers' file.
    embedded = {("namesrv", name) for kind, name in SHOWN if kind == "controller"}
    assert written
    assert {(kind, name) for kind, name in written - SHOWN - embedded if name not in OF_ONE_GROUP} == set()


def test_the_options_restore_the_limits_that_differ() -> None:
    options = list(restoring())
    assert "--set broker.haHousekeepingInterval=20000" in options
    assert not [option for option in options if "timerFlushIntervalMs" in option or "brokerHeartbeatInterval" in option]


@pytest.mark.slow
def test_own_values_are_those_of_the_jars() -> None:
    """Numbers of threads depend on the processors of the machine."""
    made = tomllib.loads(harness_settings.made())
    for kind, values in harness_settings.own_values().items():
        for name, value in values.items():
            assert scope(name) == Scope.THREADS or made[kind][name] == value, f"{kind}.{name}"
