# SPDX-License-Identifier: Apache-2.0
"""Settings that a server ignores, or that contradict each other, the topology, or the number of replicas."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from typing import Final

from rocketmq_harness.advice import names
from rocketmq_harness.advice.properties import Conf
from rocketmq_harness.advice.setup import (
    ACTING,
    CONTROLLED,
    CONTROLLER_DEFAULTS,
    DEFAULTS,
    FIXED,
    NAMESRV_DEFAULTS,
    RAFT,
    Setup,
    taken,
    wrong,
)

_SUGGESTED: Final = 50
"""Unknown names of a file that are shown, each with a similar one."""

_PLUGIN: Final = "tieredStore"
"""Settings with this beginning are read by the plug-in for tiered storage, whose names are not pinned here."""

_UNUSED: Final[Mapping[str, tuple[Collection[str], str]]] = {
    "aclEnable": (
        ("5.3.3", "5.4.0", "5.5.0"),
        "ACL 1.0 is gone, so access is open unless `authenticationEnabled` and `authorizationEnabled` are true",
    ),
}
"""A setting that a class still takes -> the versions in which no class uses it, and what an operator must know."""


@dataclass(frozen=True)
class Problem:
    """text: one sentence. where: file and line; "": no line is wrong by itself. evidence: the place in the servers'
    source, a page of this project, or a measurement.
    """

    text: str
    where: str
    evidence: str


def problems(setup: Setup) -> list[Problem]:
    """All problems, those that change what an acknowledgement means first."""
    return [*_modes(setup), *_roles(setup), *_numbers(setup), *_without_effect(setup), *_files(setup)]


def _at(setup: Setup, name: str) -> str:
    return setup.broker.where(name) if name in setup.broker.values else ""


def _modes(setup: Setup) -> Iterator[Problem]:
    if setup["enableControllerMode"] == setup["enableDLegerCommitLog"] == "true":
        text = "`enableControllerMode` and `enableDLegerCommitLog` are both true; the broker does not start"
        yield Problem(text, _at(setup, "enableDLegerCommitLog"), "BrokerStartup.buildBrokerController")
    elif setup.mode != setup.topology:
        flag = setup.mode_setting()
        why = f"`{flag}` is not true" if flag else "it sets another mode"
        text = (
            f"--topology is {setup.topology}, and by this file the broker is in the mode {setup.mode} ({why}); "
            f"everything below is about {setup.mode}"
        )
        yield Problem(text, _at(setup, flag), "BrokerController, CommitLog")
    if setup.mode == CONTROLLED and setup["enableSlaveActingMaster"] == "true":
        text = "`enableSlaveActingMaster` and `enableControllerMode` are both true; a send goes by the controller mode"
        yield Problem(text, _at(setup, "enableSlaveActingMaster"), "CommitLog.asyncPutMessage")
    namesrv = setup.namesrv
    if setup.mode == ACTING and namesrv is not None:
        name = "supportActingMaster"
        if taken(name, namesrv.values.get(name), NAMESRV_DEFAULTS[name], setup.version) != "true":
            text = "`supportActingMaster` is not true on the name server: clients are not led to an acting master"
            yield Problem(text, namesrv.where(name) if name in namesrv.values else "", "RouteInfoManager")
    if setup.mode == ACTING and setup.number("totalReplicas") != setup.replicas:
        text = f"`totalReplicas` is {setup['totalReplicas']}, and --replicas is {setup.replicas}"
        if setup.number("totalReplicas") <= 1:
            text += "; a broker that starts does not take over what its acting master did"
        yield Problem(text, _at(setup, "totalReplicas"), "BrokerController, DefaultMessageStore")


def _roles(setup: Setup) -> Iterator[Problem]:
    role, given = setup["brokerRole"], "brokerRole" in setup.broker.values
    if given and setup.mode == CONTROLLED:
        text = "`brokerRole` has no effect in controller mode: the controllers decide who is master"
        yield Problem(text, _at(setup, "brokerRole"), "ReplicasManager.changeToMaster")
    elif given and setup.mode == RAFT:
        text = "`brokerRole` has no effect with `enableDLegerCommitLog`: the Raft group decides who is master"
        yield Problem(text, _at(setup, "brokerRole"), "DLedgerRoleChangeHandler")
    elif role == "SLAVE":
        if setup.broker.values.get("brokerId", "0").strip() == "0":
            text = "`brokerRole` is SLAVE, and `brokerId` is not above 0; the broker does not start"
            yield Problem(text, _at(setup, "brokerRole"), "BrokerStartup.buildBrokerController")
    elif role == "ASYNC_MASTER" and setup.number("inSyncReplicas") > 1:
        text = (
            f"`inSyncReplicas` is {setup['inSyncReplicas']}, and has no effect: with `brokerRole` ASYNC_MASTER"
            f"{'' if given else ' (the default)'} the master waits for no replica; SYNC_MASTER does"
        )
        yield Problem(text, _at(setup, "inSyncReplicas"), "CommitLog.needHandleHA")
    alone = setup.mode == FIXED or setup["enableAutoInSyncReplicas"] != "true" or setup.number("minInSyncReplicas") <= 1
    if role == "SYNC_MASTER" and setup.mode in (FIXED, ACTING) and setup.number("inSyncReplicas") <= 1 and alone:
        text = "`brokerRole` is SYNC_MASTER, and waits for nobody: `inSyncReplicas` is 1 since 5.0, unless it is set"
        yield Problem(text, _at(setup, "brokerRole"), "CommitLog.handleHA; docs/quorum-ack.md")


def _numbers(setup: Setup) -> Iterator[Problem]:
    counted, least = setup.number("inSyncReplicas"), setup.number("minInSyncReplicas")
    waits = setup["brokerRole"] == "SYNC_MASTER" or setup.mode == CONTROLLED
    every = setup.mode == CONTROLLED and setup["allAckInSyncStateSet"] == "true"
    automatic = setup.mode == ACTING and setup["enableAutoInSyncReplicas"] == "true"
    if counted > setup.replicas and setup.mode != RAFT and waits and not every:
        what = "no send is acknowledged"
        if automatic:
            what = "never reached: the number of live replicas counts"
        elif setup.mode == ACTING:
            what = "each send is refused"
        text = f"`inSyncReplicas` is {counted}, and a group has {setup.replicas} replicas: {what}"
        yield Problem(text, _at(setup, "inSyncReplicas"), "CommitLog.calcNeedAckNums, GroupTransferService")
    if least > setup.replicas and (setup.mode == CONTROLLED or automatic):
        text = f"`minInSyncReplicas` is {least}, and a group has {setup.replicas} replicas: each send is refused"
        yield Problem(text, _at(setup, "minInSyncReplicas"), "CommitLog.asyncPutMessage")
    if automatic and least > counted:
        text = (
            f"`minInSyncReplicas` ({least}) is above `inSyncReplicas` ({counted}); {least} replicas are needed always"
        )
        yield Problem(text, _at(setup, "minInSyncReplicas"), "CommitLog.calcNeedAckNums")
    if every and least <= 1 < setup.replicas:
        text = (
            "`allAckInSyncStateSet` is true, and `minInSyncReplicas` is 1: when all slaves left the SyncStateSet, the "
            "master acknowledges alone"
        )
        yield Problem(text, _at(setup, "allAckInSyncStateSet"), "CommitLog.asyncPutMessage")


def _without_effect(setup: Setup) -> Iterator[Problem]:
    ignored = {
        RAFT: (
            (
                "inSyncReplicas",
                "minInSyncReplicas",
                "allAckInSyncStateSet",
                "enableAutoInSyncReplicas",
                "flushDiskType",
            ),
            "a majority counts, and DLedger syncs its log on a timer",
            "DLedgerCommitLog; docs/quorum-ack.md",
        ),
        FIXED: (
            ("minInSyncReplicas", "enableAutoInSyncReplicas", "allAckInSyncStateSet"),
            "a fixed master waits for `inSyncReplicas` only",
            "CommitLog.asyncPutMessage; docs/quorum-ack.md",
        ),
        ACTING: (("allAckInSyncStateSet",), "it belongs to controller mode", "CommitLog.asyncPutMessage"),
        CONTROLLED: (("enableAutoInSyncReplicas",), "it belongs to slave-acting-master", "CommitLog.asyncPutMessage"),
    }
    given, why, source = ignored[setup.mode]
    for name in given:
        if name in setup.broker.values:
            yield Problem(f"`{name}` has no effect in the mode {setup.mode}: {why}", _at(setup, name), source)
    if setup.mode == CONTROLLED and setup["allAckInSyncStateSet"] == "true" and "inSyncReplicas" in setup.broker.values:
        text = "`inSyncReplicas` has no effect with `allAckInSyncStateSet=true`: all members of the SyncStateSet count"
        yield Problem(text, _at(setup, "inSyncReplicas"), "CommitLog.asyncPutMessage")
    if (
        setup.mode == ACTING
        and setup["enableAutoInSyncReplicas"] != "true"
        and "minInSyncReplicas" in setup.broker.values
    ):
        text = (
            "`minInSyncReplicas` has no effect without `enableAutoInSyncReplicas=true`: `inSyncReplicas` alone counts"
        )
        yield Problem(text, _at(setup, "minInSyncReplicas"), "CommitLog.calcNeedAckNums")
    if setup.mode != RAFT and setup["transientStorePoolEnable"] == "true" and setup["writeWithoutMmap"] != "true":
        if setup["flushDiskType"] == "SYNC_FLUSH":
            text = (
                "`transientStorePoolEnable` with `flushDiskType` SYNC_FLUSH: messages wait in a buffer that a "
                "synchronous flush does not write (by the source; not measured)"
            )
        else:
            text = (
                "`transientStorePoolEnable` is true: acknowledged messages are in a buffer of the process for a while, "
                "so the end of the process loses them (by the source; not measured)"
            )
        yield Problem(text, _at(setup, "transientStorePoolEnable"), "DefaultMessageStore.isTransientStorePoolEnable")


def _files(setup: Setup) -> Iterator[Problem]:
    defaults = {"broker": DEFAULTS, "controller": CONTROLLER_DEFAULTS, "namesrv": NAMESRV_DEFAULTS}
    for conf in setup.confs:
        yield from _values(conf, defaults[conf.kind], setup.version)
        yield from _unknown(conf, setup.version)


def _values(conf: Conf, defaults: Mapping[str, str], version: str) -> Iterator[Problem]:
    for name, default in defaults.items():
        value = conf.values.get(name)
        right = wrong(name, value, default, version) if value is not None else None
        if value is not None and right is not None:
            value_taken = taken(name, value, default, version)
            text = f"`{name}={value}` is not taken, and the value is {value_taken}; {right} is right"
            if value != value.rstrip():
                text += ", without spaces behind it"
            yield Problem(text, conf.where(name), "MixAll.properties2Object")
    for name, lines in conf.lines.items():
        if len(lines) > 1:
            numbers = ", ".join(map(str, lines))
            yield Problem(
                f"`{name}` is set {len(lines)} times (lines {numbers}); the last one counts",
                conf.where(name),
                "java.util.Properties",
            )


def _unknown(conf: Conf, version: str) -> Iterator[Problem]:
    read, versions = names.known(conf.kind, version), names.versions_of(conf.kind)
    if conf.kind == "namesrv" and conf.values.get("enableControllerInNamesrv", "").lower() == "true":
        read |= names.known("controller", version)
    unknown = [name for name in conf.values if name not in read and not name.startswith(_PLUGIN)]
    for name, (versions_without, why) in _UNUSED.items():
        if name in conf.values and version in versions_without:
            text = f"`{name}` has no effect: {version} takes it, and uses it nowhere. {why}"
            yield Problem(text, conf.where(name), "no class of these jars reads the field")
    more = unknown[_SUGGESTED:]
    if more:
        text = f"{len(more)} more names that no {conf.kind} of {version} reads; is this the file of a {conf.kind}?"
        yield Problem(text, conf.where(more[0]), "rocketmq_harness/advice/settings.toml")
    for name in unknown[:_SUGGESTED]:
        evidence = f"the names that a {conf.kind} of {version} reads (rocketmq_harness/advice/settings.toml)"
        if name in versions:
            text = f"`{name}` has no effect: {version} does not read it; {', '.join(versions[name])} do"
        else:
            similar = names.nearest(name, read)
            other = next(
                (kind for kind in ("broker", "controller", "namesrv") if name in names.known(kind, version)), None
            )
            hint = f"; did you mean `{similar}`?" if similar else ""
            hint = f"; a {other} has it" if other else hint
            text = f"`{name}` has no effect: no {conf.kind} of the pinned versions reads it{hint}"
        yield Problem(text, conf.where(name), evidence)
