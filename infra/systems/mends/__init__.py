# SPDX-License-Identifier: Apache-2.0
"""Mends: known defects of the servers, corrected by the harness' Java agent while the class is loaded.

A mend is one file, `NN-NAME.toml`; NN is the id of the finding whose cause it removes:

    reason = "removeConnection no longer changes the master's own SyncStateSet"
    upstream = "apache/rocketmq#9897"                    # where its own people corrected it, or speak of it
    versions = ["rocketmq 5.4.0", "rocketmq 5.5.0"]      # as `harness list versions` names them
    clients = true                                       # for applications, too: the client has the defect

    [[edit]]
    method = "org.apache.rocketmq.store.ha.autoswitch.AutoSwitchHAService.removeConnection"
    descriptor = "(J)V"                                  # where the class has several methods of that name
    at = "call"                                          # or before, after, body
    call = "java.util.Set.clear"                         # with at = "call": whose calls are replaced
    source = "{}"                                        # Java as Javassist reads it

`agent/` has the agent (`Agent.java`: how it fails; `Mender.java`: what an edit may be).
"""
