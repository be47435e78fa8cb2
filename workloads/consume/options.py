# SPDX-License-Identifier: Apache-2.0
"""The options of the workload `consume`, and which of them go together."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, Literal

from harness.plan.plan import PlanError
from infra.options import Seconds, option
from infra.systems.rocketmq.applications.java import GRPC_VERSION
from infra.systems.rocketmq.applications.library import GrpcClient, Library
from workloads.consume.group_changes import KINDS, Changes

DIRECT: Final = ("remoting", "lite-pull")
"""The libraries that talk to the brokers."""

NATIVE: Final = "native"
"""The library librocketmq (C++), which talks to the brokers, and reports no queues."""

PROXIED: Final = "remoting-proxy"
"""The library that talks to the proxies as to brokers."""

_MODES_S: Final = 5.0
"""The least time between two changes of the mode."""

_CHANGES_S: Final = 5.0
"""The least time between two changes of the group."""

_MEMBERS_RESET_S: Final = 15.0
"""The least time between two resets that members execute: a push consumer stops for 10 s for each one
(`MQClientInstance.resetOffset`)."""


@dataclass(frozen=True)
class ConsumeOptions:
    """The options of the workload."""

    members: int = option(3, "Members of the group, each in a process of its own.", low=1, high=4)
    listener: Literal["concurrently", "orderly", "broadcast"] = option(
        "concurrently",
        "How members consume. With broadcast, each one gets everything. With grpc-push and grpc-simple, orderly means "
        "FIFO: the messages of a message group are in order.",
    )
    library: Library = option(
        "remoting",
        "The members' client: of the remoting protocol, a push consumer or one that polls (lite-pull), or a push "
        "consumer through a proxy; of gRPC, a push or a simple consumer; or a push consumer of librocketmq, the C++ "
        "client (native).",
    )
    grpc_client: GrpcClient = option(
        "5.1.0", "With --library grpc-push or grpc-simple: the version of `rocketmq-client-java`."
    )
    backlog: Seconds = option(Seconds(0), "Producers send for so long before the first member joins.")
    begins: Literal["first", "last", "time"] = option(
        "first",
        "Where a group without an offset begins: at the first message of a queue, or as CONSUME_FROM_LAST_OFFSET says "
        "(the default of applications): a group for which no message has expired yet begins at the first one, too, and "
        "a broadcast member begins with what is sent after its start. time: at what was stored since 30 min before the "
        "run (CONSUME_FROM_TIMESTAMP).",
    )
    allocation: Literal["averagely", "circle", "consistent-hash"] = option(
        "averagely",
        "How members share the queues: AllocateMessageQueueAveragely (the library's default), "
        "AllocateMessageQueueAveragelyByCircle, or AllocateMessageQueueConsistentHash.",
    )
    mode: Literal["pull", "pop"] = option(
        "pull",
        "With --library remoting: the members pull, or they pop, as an administrator sets it "
        "(SET_MESSAGE_REQUEST_MODE).",
    )
    mode_changes_every: Seconds = option(
        Seconds(0), "With --mode pop: so often an administrator changes between pull and pop. 0: never."
    )
    commits: Literal["auto", "by-hand"] = option(
        "auto",
        "With --library lite-pull: the members share the queues and the library commits; or each one has queues of its "
        "own (`assign`), seeks the committed offsets, and commits by hand.",
    )
    member_settings: tuple[str, ...] = option(
        (),
        "With --library remoting or lite-pull: a setting of the members' consumers, such as "
        "useHeartbeatV2=true (docs/clients.md). It may be given more than once.",
        metavar="NAME=VALUE",
        flag="--member-setting",
    )
    application: str | None = option(
        None,
        "A program of your own in place of the harness' members: a folder with an executable `run` (docs/clients.md).",
        metavar="FOLDER",
    )
    filter: Literal["none", "tag", "sql"] = option(
        "none",
        "What the group subscribes to: everything, or messages with the tags a and b, named as tags or by SQL92.",
    )
    matching: float = option(0.0, "With --filter: so many messages (%) match it. 0: two thirds.", low=0, high=100)
    batch: int = option(
        1,
        "With --library remoting, and not orderly: a listener gets up to so many messages at once "
        "(`consumeMessageBatchMaxSize`), and acknowledges those before the first one that fails (`ackIndex`).",
        low=1,
        high=32,
    )
    failing: float = option(0.0, "Of so many messages (%) the first attempts fail.", low=0, high=50)
    fails: int = option(1, "The number of attempts that fail.", low=1, high=16)
    max_attempts_again: int = option(
        1,
        "A message that failed is tried again so often, and becomes a dead letter then. Members that pop have 16.",
        low=1,
        high=16,
    )
    delay_level: int = option(
        0,
        "With --library remoting: a consumer names this delay level for a message that failed "
        "(`delayLevelWhenNextConsume`). 0: none, the broker chooses.",
        low=0,
        high=5,
    )
    stuck: int = option(
        0,
        "With --library remoting and --listener concurrently: so many messages take 150 s in their first attempt, "
        "longer than `consumeTimeout` (1 min here); the library must send them back.",
        low=0,
        high=10,
    )
    slow: float = option(0.0, "Of so many messages (%) each attempt takes 0.3 s.", low=0, high=50)
    producer: Literal["harness", "java"] = option(
        "harness",
        "The client that sends: our own, or RocketMQ's Java client on a node of its own, which sends one by one, in "
        "batches, asynchronously and one-way.",
    )
    large: float = option(
        0.0,
        "With --producer java: so many messages (%) have 128 KiB, and a tenth of them almost maxMessageSize (4 MiB).",
        low=0,
        high=5,
    )
    requests: float = option(
        0.0,
        "With --producer java and --library remoting: so many messages (%) are requests, whose producer waits for the "
        "reply of a member.",
        low=0,
        high=50,
    )
    renewed: float = option(
        0.0,
        "With --library grpc-simple: for so many messages (%) a consumer requests a new invisible duration, and works "
        "on them for longer than the first one.",
        low=0,
        high=20,
    )
    nacked: float = option(
        0.0,
        "With --library grpc-simple: so many messages (%) fail once, and the consumer requests another invisible "
        "duration for them, which ends sooner than the first one, or at the same time.",
        low=0,
        high=20,
    )
    acked_twice: float = option(
        0.0, "With --library grpc-simple: so many messages (%) are acknowledged a second time.", low=0, high=50
    )
    resets: Seconds = option(
        Seconds(0),
        "How often an administrator resets the group's offsets: of one queue to an offset, or of all to a time or to "
        "the end. 0: never.",
    )
    reset_by: Literal["brokers", "members"] = option(
        "brokers",
        "With --resets: brokers reset the offsets themselves, or ask the connected members to, as by default in 5.1 "
        "(only to a time or to the end).",
    )
    group_changes_every: Seconds = option(
        Seconds(0), "How often an administrator changes the group itself (`group_changes`). 0: never."
    )
    group_changes: Changes = option(
        "settings",
        "With --group-changes-every: settings (the group may not consume for some seconds, or gets another limit of "
        "retries), queues (another number of retry queues), deletions (it is deleted with or without its offsets, and "
        "made again), or all, but queues.",
    )
    group_changes_at: Literal["all", "masters"] = option(
        "all", "The brokers that get these changes: all, or the masters, as with mqadmin updateSubGroup -c."
    )
    member_goes_every: Seconds = option(
        Seconds(20), "How often each member crashes or leaves, on average; it is back after 2 s. 0: never."
    )

    @property
    def grpc(self) -> bool:
        """True if the members use the gRPC client."""
        return self.library.startswith("grpc")

    @property
    def native(self) -> bool:
        """True if the members use librocketmq."""
        return self.library == NATIVE

    @property
    def fifo(self) -> bool:
        """True if the messages of a message group are in order."""
        return self.grpc and self.listener == "orderly"

    @property
    def popping(self) -> bool:
        """True if push consumers pop."""
        return self.mode == "pop"

    @property
    def pops(self) -> bool:
        """True for the harness' own simple consumers."""
        return self.library == "grpc-simple" and self.application is None

    @property
    def changes(self) -> Sequence[str]:
        """The kinds of changes of the group."""
        if self.listener == "orderly" or self.application is not None:
            # Without its offset a queue may begin again, or further on: no order, and unknown owners.
            return [kind for kind in KINDS[self.group_changes] if kind != "clean"]
        return KINDS[self.group_changes]

    def check(self, local_proxies: bool) -> None:
        """Raises PlanError for options that do not go together. local_proxies: brokers have proxies inside."""
        if self.grpc and self.listener == "broadcast":
            raise PlanError(
                f"listener is 'broadcast'; with --library {self.library} concurrently and orderly are right"
            )
        if self.native:
            self._check_native()
        if self.member_settings and (self.grpc or self.application is not None):
            raise PlanError("member_settings needs --library remoting or lite-pull, and no --application")
        if self.begins != "first" and self.application is not None:
            raise PlanError(f"begins is {self.begins!r}; with --application only first is right")
        if self.begins == "time" and self.grpc:
            raise PlanError(f"begins is 'time'; with --library {self.library} first and last are right")
        shares = self.listener != "broadcast" and not self.popping and self.commits == "auto"
        if self.allocation != "averagely" and (self.grpc or self.application is not None or not shares):
            raise PlanError(
                f"allocation is {self.allocation!r}; it needs --library remoting, lite-pull or remoting-proxy, another "
                "listener than broadcast, --mode pull, --commits auto, and no --application"
            )
        if self.grpc_client != GRPC_VERSION and (not self.grpc or self.application is not None):
            raise PlanError(
                f"grpc_client is {self.grpc_client!r}; it needs --library grpc-push or grpc-simple, and no "
                "--application"
            )
        if self.fifo and self.producer == "java":
            raise PlanError(
                f"producer is 'java', which has no message groups; with {self.library} orderly, harness is right"
            )
        if self.library == "lite-pull":
            if self.listener != "concurrently":
                raise PlanError(f"listener is {self.listener!r}; with --library lite-pull concurrently is right")
            if self.failing:
                raise PlanError("failing needs another library than lite-pull, which tries nothing again")
        if self.commits == "by-hand" and (
            self.library != "lite-pull"
            or self.application is not None
            or self.filter != "none"
            or self.begins != "first"
            or self.resets
            or self.group_changes_every
        ):
            raise PlanError(
                "commits is 'by-hand'; it needs --library lite-pull, --begins first, and neither --filter, --resets, "
                "--group-changes-every nor --application"
            )
        if self.failing and self.listener == "broadcast":
            raise PlanError("failing needs another listener than broadcast: a broadcast consumer tries nothing again")
        for name in ("renewed", "nacked", "acked_twice"):
            if getattr(self, name) and not self.pops:
                raise PlanError(f"{name} is {getattr(self, name):g}; it needs --library grpc-simple")
            if getattr(self, name) and self.fifo:
                raise PlanError(f"{name} is {getattr(self, name):g}; it needs --listener concurrently")
        if self.matching and self.filter == "none":
            raise PlanError(f"matching is {self.matching:g}; it needs --filter tag or sql")
        if self.batch > 1 and (
            not self.library.startswith("remoting")
            or self.listener == "orderly"
            or self.delay_level
            or self.application is not None
        ):
            raise PlanError(
                f"batch is {self.batch}; it needs --library remoting, another listener than orderly, and neither "
                "--delay-level nor --application"
            )
        if self.large and self.producer != "java":
            raise PlanError(f"large is {self.large:g}; it needs --producer java")
        if self.requests and (
            self.producer != "java"
            or self.library != "remoting"
            or self.application is not None
            or self.listener == "broadcast"
            or self.filter != "none"
        ):
            raise PlanError(
                f"requests is {self.requests:g}; it needs --producer java, --library remoting, another "
                "listener than broadcast, and neither --application nor --filter"
            )
        if self.resets and self.listener == "broadcast":
            raise PlanError("resets needs another listener than broadcast: each member keeps its own offsets")
        if self.reset_by == "members" and self.resets < _MEMBERS_RESET_S:
            raise PlanError(
                f"resets is {self.resets:g} s; with --reset-by members at least {_MEMBERS_RESET_S:g} s is "
                "right: a member stops for 10 s for each"
            )
        plain = self.library.startswith("remoting") and self.listener == "concurrently"
        if self.stuck and (not plain or self.popping or self.batch > 1 or self.application is not None):
            raise PlanError(
                f"stuck is {self.stuck}; it needs --library remoting, --listener concurrently, --mode pull, and "
                "neither --batch nor --application"
            )
        if self.stuck and self.member_goes_every:
            raise PlanError(
                f"member_goes_every is {self.member_goes_every:g} s; with --stuck 0s is right: a process that ends "
                "keeps nothing"
            )
        if self.delay_level and not (plain and self.failing):
            raise PlanError(
                f"delay_level is {self.delay_level}; it needs --library remoting, --listener concurrently and --failing"
            )
        if local_proxies and not self.grpc:
            raise PlanError(
                f"proxy.proxyMode is local; with --library {self.library} cluster is right: only gRPC clients "
                "follow the masters"
            )
        self._check_mode()
        self._check_changes()

    def _check_native(self) -> None:
        """Raises PlanError for options that librocketmq has no means for."""
        if self.application is not None:
            raise PlanError("library is 'native'; with --application another one is right")
        if self.listener == "broadcast":
            raise PlanError("listener is 'broadcast'; with --library native concurrently and orderly are right")
        if self.filter == "sql":
            raise PlanError("filter is 'sql'; with --library native none and tag are right: it filters by tags alone")
        if self.failing and self.listener == "orderly":
            raise PlanError(
                "failing needs --listener concurrently with --library native: it counts no attempts of an orderly "
                "listener"
            )
        if self.max_attempts_again != 1:
            raise PlanError(
                f"max_attempts_again is {self.max_attempts_again}; with --library native it cannot be set: brokers try "
                "16 times again"
            )
        if self.member_settings:
            raise PlanError("member_settings needs --library remoting or lite-pull")
        for name in ("resets", "group_changes_every"):
            if getattr(self, name):
                raise PlanError(f"{name} is {getattr(self, name):g} s; with --library native only 0 is right")

    def _check_mode(self) -> None:
        """Raises PlanError for options that do not go with the mode."""
        if self.mode_changes_every and not self.popping:
            raise PlanError(f"mode_changes_every is {self.mode_changes_every:g} s; it needs --mode pop")
        if not self.popping:
            return
        if self.library != "remoting" or self.application is not None or self.listener != "concurrently":
            raise PlanError("mode is 'pop'; it needs --library remoting, --listener concurrently, and no --application")
        if self.resets:
            raise PlanError(f"resets is {self.resets:g} s; with --mode pop only 0 is right")
        if self.mode_changes_every and self.mode_changes_every < _MODES_S:
            raise PlanError(
                f"mode_changes_every is {self.mode_changes_every:g} s; at least {_MODES_S:g} s is right: members "
                "look at it every 20 s"
            )

    def _check_changes(self) -> None:
        """Raises PlanError for options that do not go with changes of the group."""
        every = self.group_changes_every
        if not every:
            if self.group_changes_at == "masters":
                raise PlanError("group_changes_at is 'masters'; it needs --group-changes-every")
            return
        if every < _CHANGES_S:
            raise PlanError(
                f"group_changes_every is {every:g} s; at least {_CHANGES_S:g} s is right: between two changes the "
                "members must catch up"
            )
        for name in ("resets", "mode_changes_every"):
            if getattr(self, name):
                raise PlanError(f"{name} is {getattr(self, name):g}; with --group-changes-every only 0 is right")
        if "queues" in self.changes and not self.failing:
            raise PlanError("group_changes is 'queues'; it needs --failing: nothing else uses the retry queues")
        if "delete" in self.changes and (self.library not in DIRECT or self.popping):
            raise PlanError(
                f"group_changes is {self.group_changes!r}; deletions need --library remoting or lite-pull, and "
                "--mode pull: settings or queues is right"
            )
