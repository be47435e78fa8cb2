# SPDX-License-Identifier: Apache-2.0
"""The process of a native client: `python -m infra.systems.rocketmq.clients.native_child FOLDER`,
rocketmq-client-python in FOLDER.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from importlib import import_module
from typing import Any

from infra.systems.rocketmq.clients.child import Handler, serve
from infra.systems.rocketmq.clients.missing_functions import MISSING, tolerate_missing_functions


def open_() -> Mapping[str, Handler]:
    sys.path.insert(0, sys.argv[1])
    tolerate_missing_functions()
    client, ffi = import_module("rocketmq.client"), import_module("rocketmq.ffi")

    producers: list[Any] = []

    def library(_: dict[str, Any]) -> Mapping[str, Any]:
        return {"path": str(ffi._DYLIB_PATH), "missing": sorted(set(MISSING))}

    def produce(request: dict[str, Any]) -> Mapping[str, Any]:
        producer = client.Producer(request["group"], timeout=request["timeout_ms"])
        producer.set_name_server_address(request["nameservers"])
        producer.start()
        producers.append(producer)
        return {}

    def send(request: dict[str, Any]) -> Mapping[str, Any]:
        message = client.Message(request["topic"])
        try:
            message.set_body(request["body"])
            sent = producers[0].send_sync(message)
        finally:
            ffi.dll.DestroyMessage(message)  # version 2.0.0 never does
        return {"status": sent.status.name, "message_id": sent.msg_id, "offset": sent.offset}

    return {"library": library, "produce": produce, "send": send}


if __name__ == "__main__":
    serve(open_)
