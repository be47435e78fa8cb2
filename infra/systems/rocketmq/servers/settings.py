# SPDX-License-Identifier: Apache-2.0
"""The harness' configuration of RocketMQ: every setting that differs from the server's own, with its reason.

Names are the servers' own (`BrokerConfig`, `MessageStoreConfig`, `NamesrvConfig`, `ControllerConfig`, ...); servers of
older versions ignore those that they do not have. The topology sets values of one node (addresses, names).
Figures were seen on 5.1.1 to 5.5.0 with two slow cores.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from infra.systems.settings import Default

_FEW: Final = "few clients, and five brokers share a small machine"

NAMESRV: Final[Mapping[str, Default]] = {
    "scanNotActiveBrokerInterval": Default(
        "1000", "a silent broker leaves the route at its limit, not up to 5 s later"
    ),
    "defaultThreadPoolNums": Default("4", _FEW, needed=True),
    "clientRequestThreadPoolNums": Default("4", _FEW, needed=True),
}

_SERVER_POOLS: Final[Mapping[str, Default]] = {
    "serverWorkerThreads": Default("4", _FEW, needed=True),
    "serverSelectorThreads": Default("2", _FEW, needed=True),
}

BROKER: Final[Mapping[str, Default]] = {
    # What decides the load of an idle broker.
    "transactionMetricFlushInterval": Default(
        "300",
        "in 5.4.0 and 5.5.0 a thread spins on one core for a broker's first 10 s with the default",
        needed=True,
    ),
    "timerFlushIntervalMs": Default(
        "10000",
        "an idle broker takes 12 to 13 % of a core with the default",
        needed=True,
    ),
    # What a test wants to see, or not to be fooled by.
    "autoCreateTopicEnable": Default("false", "a mistyped topic must be an error, not a new topic"),
    "autoCreateSubscriptionGroup": Default("false", "a mistyped group must be an error, not a new group"),
    "slaveReadEnable": Default("true", "readers compare the replicas; slaves refuse reads otherwise", needed=True),
    "registerNameServerPeriod": Default("10000", "10 s is the shortest period that brokers accept"),
    "brokerHeartbeatInterval": Default(
        "1000", "the server's own value, written out because `brokerNotActiveTimeoutMillis` depends on it"
    ),
    "brokerNotActiveTimeoutMillis": Default("3000", "a broker counts as silent after three missed heartbeats, not ten"),
    "osPageCacheBusyTimeOutMills": Default(
        "5000", "a slow disk of a shared machine is no overload of the broker", needed=True
    ),
    "waitTimeMillsInSendQueue": Default(
        "3000", "a short lack of processor time is no overload; with 200 ms the broker refuses sends", needed=True
    ),
    "fileReservedTime": Default("8760", "nothing expires: an expired message would look like a lost one"),
    "diskMaxUsedSpaceRatio": Default(
        "95", "a machine whose disk is rather full must not make brokers delete files", needed=True
    ),
    # Small files and few threads: five brokers on one machine.
    "mappedFileSizeCommitLog": Default(
        str(32 << 20),
        "brokers create the next file ahead, 1 GiB each; and a run must roll over to new files",
        needed=True,
    ),
    "mappedFileSizeConsumeQueue": Default(
        "600000",
        "30,000 messages a file; with 2,000, the recovery after a power failure takes a hole of zero bytes for data",
        needed=True,
    ),
    "messageIndexEnable": Default(
        "false", "an index file has 420 MB, and no workload looks up messages by key", needed=True
    ),
    "mappedFileSizeTimerLog": Default(str(10 << 20), "a file has 100 MB otherwise", needed=True),
    "enableCompaction": Default("false", "threads and files for topics that no workload creates", needed=True),
    "maxMessageSize": Default(str(64 << 10), "a message must be far smaller than a CommitLog file"),
    **_SERVER_POOLS,
    "sendMessageThreadPoolNums": Default("4", _FEW, needed=True),
    "pullMessageThreadPoolNums": Default("4", _FEW, needed=True),
    "litePullMessageThreadPoolNums": Default("2", _FEW, needed=True),
    "ackMessageThreadPoolNums": Default("4", _FEW, needed=True),
    "queryMessageThreadPoolNums": Default("2", _FEW, needed=True),
    "adminBrokerThreadPoolNums": Default("4", _FEW, needed=True),
    "clientManageThreadPoolNums": Default("4", _FEW, needed=True),
    "consumerManageThreadPoolNums": Default("4", _FEW, needed=True),
    "heartbeatThreadPoolNums": Default("2", _FEW, needed=True),
    "endTransactionThreadPoolNums": Default("4", _FEW, needed=True),
    "recoverThreadPoolNums": Default("2", _FEW, needed=True),
    "loadBalanceProcessorThreadPoolNums": Default("2", _FEW, needed=True),
    "processReplyMessageThreadPoolNums": Default("2", _FEW, needed=True),
}

REPLICATED: Final[Mapping[str, Default]] = {
    "slaveTimeout": Default("2000", "a send to an unreachable replica fails before the client's own time limit"),
}
"""Settings of brokers that wait for replicas."""

CONTROLLED: Final[Mapping[str, Default]] = {
    **REPLICATED,
    "enableControllerMode": Default("true", "the mode", needed=True),
    "controllerHeartBeatTimeoutMills": Default(
        "3000", "the controllers replace a stopped master during a fault, not after it"
    ),
    "syncBrokerMetadataPeriod": Default("1000", "a broker learns its new role within 1 s"),
    "syncControllerMetadataPeriod": Default("2000", "a broker learns a new leader of the controllers within 2 s"),
    "checkSyncStateSetPeriod": Default("1000", "the master reports a replica that caught up or fell behind within 1 s"),
    "haMaxTimeSlaveNotCatchup": Default("4000", "a replica that is behind for longer leaves the SyncStateSet"),
    "haSendHeartbeatInterval": Default(
        "1000", "heartbeats of replication must be shorter than `haHousekeepingInterval`"
    ),
    "haHousekeepingInterval": Default("5000", "a master closes a silent replication connection after this time"),
}
"""Settings of brokers under controllers."""

STRICT_CONTROLLED: Final[Mapping[str, Default]] = {
    "allAckInSyncStateSet": Default("true", "an acknowledged message is on every replica that may become master"),
    "inSyncReplicas": Default("1", "with `allAckInSyncStateSet` this number does not count"),
    "minInSyncReplicas": Default("2", "the master refuses sends when the SyncStateSet has fewer than two members"),
}
"""No acknowledged message may be lost by a change of master. (Loss of power takes flushDiskType=SYNC_FLUSH as well.)"""

CONTROLLER: Final[Mapping[str, Default]] = {
    "scanNotActiveBrokerInterval": Default(
        "1000", "controllers find a silent broker at its limit, not up to 5 s later"
    ),
    "notifyBrokerRoleChanged": Default("true", "brokers learn of an election at once"),
    "mappedFileSize": Default(str(16 << 20), "a file of the controllers' log has 1 GiB otherwise", needed=True),
    "controllerThreadPoolNums": Default("4", _FEW, needed=True),
}

JRAFT: Final[Mapping[str, Default]] = {
    "jRaftElectionTimeoutMs": Default("1000", "the server's own value, written out: elections take one or two seconds"),
    "jRaftScanWaitTimeoutMs": Default(
        "1000", "the server's own value, written out: the leader looks for silent brokers in this period"
    ),
    "scanInactiveMasterInterval": Default("1000", "the leader looks for silent masters in this period"),
    "jRaftSnapshotIntervalSecs": Default("60", "no run would contain a snapshot otherwise"),
}

SYNC_GROUP: Final[Mapping[str, Default]] = {
    **REPLICATED,
    "brokerRole": Default("SYNC_MASTER", "a send waits for replicas; see `inSyncReplicas`"),
    "inSyncReplicas": Default(
        "2", "`SYNC_MASTER` alone waits for no replica: since 5.0 this number decides (`CommitLog`)"
    ),
}
"""Settings of a master that must not lose acknowledged messages, while one of its slaves remains."""

ACTING_NAMESRV: Final[Mapping[str, Default]] = {
    "supportActingMaster": Default("true", "the mode (RIP-32)", needed=True),
    "notifyMinBrokerIdChanged": Default(
        "true", "brokers learn at once that the smallest id of their group has changed"
    ),
}

ACTING: Final[Mapping[str, Default]] = {
    **REPLICATED,
    "brokerRole": Default("SYNC_MASTER", "a send waits for replicas; see `inSyncReplicas`"),
    "enableSlaveActingMaster": Default("true", "the mode (RIP-32)", needed=True),
    "enableRemoteEscape": Default("true", "an acting master sends what it may not store to the other group"),
    "lockInStrictMode": Default("true", "a lock needs a majority of the group"),
    "skipPreOnline": Default("false", "a returning master first takes over the state of its acting master"),
    "compatibleWithOldNameSrv": Default("false", "no emulation for name servers older than 5.0"),
    "transactionTimeOut": Default("3000", "a broker asks about an open half message within a run"),
    "transactionCheckInterval": Default("5000", "a broker looks for open half messages in this period"),
    "transactionOpBatchInterval": Default("500", "decisions of transactions reach the slaves before a fault"),
    "loadBalancePollNameServerInterval": Default("2000", "an acting master finds the other group within 2 s"),
    "enableAutoInSyncReplicas": Default(
        "true", "without its slaves a master serves alone, down to `minInSyncReplicas`"
    ),
    "minInSyncReplicas": Default("1", "see `enableAutoInSyncReplicas`"),
}
"""Settings of members of a group whose slaves act as the master."""

STRICT_ACTING: Final[Mapping[str, Default]] = {
    "enableAutoInSyncReplicas": Default(
        "false", "a master does not lower the number of replicas that must have a message"
    ),
    "minInSyncReplicas": Default("2", "a master without its slaves refuses sends"),
}

DLEDGER: Final[Mapping[str, Default]] = {
    "enableDLegerCommitLog": Default("true", "the mode (RocketMQ spells it so)", needed=True),
}

PROXY: Final[Mapping[str, Default]] = {
    "grpcThreadPoolNums": Default("8", _FEW, needed=True),
    "grpcBossLoopNum": Default("1", _FEW, needed=True),
    "grpcWorkerLoopNum": Default("2", _FEW, needed=True),
}
