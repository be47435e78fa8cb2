# SPDX-License-Identifier: Apache-2.0
"""RocketMQ's servers: the available versions, and the parts that start each kind of server, with reasons.

`artifacts` fetches the published jars, `settings` has the servers' configuration, `jvm` the options of their JVMs.
`infra/systems/rocketmq/topologies/` defines where they run.
"""

from __future__ import annotations

from typing import Final

NAMESRV: Final = "namesrv"
CONTROLLER: Final = "controller"
BROKER: Final = "broker"
PROXY: Final = "proxy"

MAIN_CLASSES: Final = {
    NAMESRV: "org.apache.rocketmq.namesrv.NamesrvStartup",
    CONTROLLER: "org.apache.rocketmq.controller.ControllerStartup",
    BROKER: "org.apache.rocketmq.broker.BrokerStartup",
    PROXY: "org.apache.rocketmq.proxy.ProxyStartup",
}
"""The kinds of servers, in the order of their start."""
