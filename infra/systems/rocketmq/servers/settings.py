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
    "scanNotActiveBrokerInterval": Default("1000", "a silent broker leaves the route at its limit, not 5 s later"),
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
        "5.4.0 and 5.5.0: with the default of 10 s a thread spins on one core for a broker's first 10 s",
        needed=True,
    ),
    "timerFlushIntervalMs": Default(
        "10000",
        "every version: an idle broker takes 12-13 % of a core with the default of 1 s",
        needed=True,
    ),
    # What a test wants to see, or not to be fooled by.
    "autoCreateTopicEnable": Default("false", "a mistyped topic must be an error, not a new topic"),
    "autoCreateSubscriptionGroup": Default("false", "the same for groups"),
    "slaveReadEnable": Default("true", "readers compare the replicas; refused otherwise", needed=True),
    "registerNameServerPeriod": Default("10000", "10 s is the shortest that brokers accept"),
    "brokerHeartbeatInterval": Default("1000", "said once more, for the limit below goes with it"),
    "brokerNotActiveTimeoutMillis": Default("3000", "a silent broker is gone after three missed heartbeats, not ten"),
    "osPageCacheBusyTimeOutMills": Default(
        "5000", "a slow disk of a shared machine is no overload of the broker's", needed=True
    ),
    "waitTimeMillsInSendQueue": Default(
        "3000", "the same for a pause of the processor: 200 ms refuse sends (2)", needed=True
    ),
    "fileReservedTime": Default("8760", "nothing expires: an expired message would look like a lost one"),
    "diskMaxUsedSpaceRatio": Default("95", "the same for a machine's disk that is rather full", needed=True),
    # Small files and few threads: five brokers on one machine.
    "mappedFileSizeCommitLog": Default(
        str(32 << 20), "the next file is made ahead: 1 GiB each; rolled over in a run", needed=True
    ),
    "mappedFileSizeConsumeQueue": Default(
        "600000",
        "30,000 messages a file; with 2,000, recovery after a loss of power takes a hole of NULs for data",
        needed=True,
    ),
    "messageIndexEnable": Default("false", "420 MB a file, and nobody looks messages up by key", needed=True),
    "mappedFileSizeTimerLog": Default(str(10 << 20), "100 MB otherwise", needed=True),
    "enableCompaction": Default("false", "threads and files for topics that no test makes", needed=True),
    "maxMessageSize": Default(str(64 << 10), "far below the size of a CommitLog file"),
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
    "slaveTimeout": Default("2000", "an unreachable replica is reported within the clients' time, not after it"),
}
"""Settings of brokers that wait for replicas."""

CONTROLLED: Final[Mapping[str, Default]] = {
    **REPLICATED,
    "enableControllerMode": Default("true", "the mode", needed=True),
    "controllerHeartBeatTimeoutMills": Default("3000", "a stopped master is replaced within a fault, not after 10 s"),
    "syncBrokerMetadataPeriod": Default("1000", "a broker hears of its new role within 1 s, not 5"),
    "syncControllerMetadataPeriod": Default("2000", "and of a new leader of the controllers within 2 s, not 10"),
    "checkSyncStateSetPeriod": Default("1000", "a replica that caught up, or fell behind, is reported within 1 s"),
    "haMaxTimeSlaveNotCatchup": Default("4000", "a replica behind for longer leaves the SyncStateSet; 15 s otherwise"),
    "haSendHeartbeatInterval": Default("1000", "replication heartbeats, shorter than the limit below"),
    "haHousekeepingInterval": Default("5000", "a dead replication connection is dropped after 5 s, not 20"),
}
"""Settings of brokers under controllers."""

STRICT_CONTROLLED: Final[Mapping[str, Default]] = {
    "allAckInSyncStateSet": Default("true", "an acknowledged message is on every replica that may become master"),
    "inSyncReplicas": Default("1", "the number is not what counts then"),
    "minInSyncReplicas": Default("2", "and there are at least two such replicas, or the send is refused"),
}
"""No acknowledged message may be lost by a change of master. (Loss of power takes flushDiskType=SYNC_FLUSH as well.)"""

CONTROLLER: Final[Mapping[str, Default]] = {
    "scanNotActiveBrokerInterval": Default("1000", "a silent broker is found at its limit, not up to 5 s later"),
    "notifyBrokerRoleChanged": Default("true", "brokers hear of an election at once"),
    "mappedFileSize": Default(str(16 << 20), "1 GiB files otherwise", needed=True),
    "controllerThreadPoolNums": Default("4", _FEW, needed=True),
}

JRAFT: Final[Mapping[str, Default]] = {
    "jRaftElectionTimeoutMs": Default("1000", "said once more: elections within a second or two"),
    "jRaftScanWaitTimeoutMs": Default("1000", "the leader's look for silent brokers"),
    "scanInactiveMasterInterval": Default("1000", "the same for silent masters; 5 s otherwise"),
    "jRaftSnapshotIntervalSecs": Default("60", "an hour otherwise: no run would ever see a snapshot"),
}

SYNC_GROUP: Final[Mapping[str, Default]] = {
    **REPLICATED,
    "brokerRole": Default("SYNC_MASTER", "acknowledged when replicated"),
    "inSyncReplicas": Default("2", "SYNC_MASTER alone waits for nobody: since 5.0 this number decides (CommitLog)"),
}
"""Settings of a master that must not lose acknowledged messages, while one of its slaves remains."""

ACTING_NAMESRV: Final[Mapping[str, Default]] = {
    "supportActingMaster": Default("true", "the mode (RIP-32)", needed=True),
    "notifyMinBrokerIdChanged": Default("true", "brokers hear of a change among them at once"),
}

ACTING: Final[Mapping[str, Default]] = {
    **REPLICATED,
    "brokerRole": Default("SYNC_MASTER", "acknowledged when replicated"),
    "enableSlaveActingMaster": Default("true", "the mode (RIP-32)", needed=True),
    "enableRemoteEscape": Default("true", "what an acting master may not store goes to the other group"),
    "lockInStrictMode": Default("true", "a lock takes a majority of the group"),
    "skipPreOnline": Default("false", "a returning master first takes over what its stand-in has done"),
    "compatibleWithOldNameSrv": Default("false", "no emulation for name servers older than 5.0"),
    "transactionTimeOut": Default("3000", "unanswered half messages are asked about within a run"),
    "transactionCheckInterval": Default("5000", "the same"),
    "transactionOpBatchInterval": Default("500", "decisions reach the slaves before a fault, not 3 s later"),
    "loadBalancePollNameServerInterval": Default("2000", "an acting master finds the other group at once, not in 30 s"),
    "enableAutoInSyncReplicas": Default("true", "without its slaves a master serves alone, down to minInSyncReplicas"),
    "minInSyncReplicas": Default("1", "the same"),
}
"""Settings of members of a group whose slaves act as the master."""

STRICT_ACTING: Final[Mapping[str, Default]] = {
    "enableAutoInSyncReplicas": Default("false", "the number of replicas that must have a message is not lowered"),
    "minInSyncReplicas": Default("2", "a master without its slaves refuses sends"),
}

DLEDGER: Final[Mapping[str, Default]] = {
    "enableDLegerCommitLog": Default("true", "the mode; spelt so by RocketMQ", needed=True),
}

PROXY: Final[Mapping[str, Default]] = {
    "grpcThreadPoolNums": Default("8", _FEW, needed=True),
    "grpcBossLoopNum": Default("1", _FEW, needed=True),
    "grpcWorkerLoopNum": Default("2", _FEW, needed=True),
}
