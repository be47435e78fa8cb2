# SPDX-License-Identifier: Apache-2.0
"""The process of a gRPC client: `python -m infra.systems.rocketmq.clients.proxy_child FOLDER HOST:PORT`, FOLDER with
its packages.

Of rocketmq-python-client only the generated protocol code is used: its producer sends three times behind one `send`,
and reports the last of three errors alone. Its package is entered without its `__init__`, which would start logs and
metrics.
"""

from __future__ import annotations

import sys
import time
import types
import uuid
from collections.abc import Mapping
from importlib import import_module
from pathlib import Path
from typing import Any, Final

from infra.systems.rocketmq.clients.child import Handler, serve

_OPTIONS: Final = (
    ("grpc.enable_retries", 0),
    ("grpc.use_local_subchannel_pool", 1),
    ("grpc.initial_reconnect_backoff_ms", 100),
    ("grpc.max_reconnect_backoff_ms", 500),
)
"""One attempt a call, one connection a client, and soon another one after it broke."""


def open_() -> Mapping[str, Handler]:
    folder, address = sys.argv[1:3]
    sys.path.insert(0, folder)
    bare = types.ModuleType("rocketmq")
    bare.__path__ = [str(Path(folder) / "rocketmq")]
    sys.modules["rocketmq"] = bare
    grpc = import_module("grpc")
    definition = import_module("rocketmq.grpc_protocol.definition_pb2")
    service_pb2 = import_module("rocketmq.grpc_protocol.service_pb2")
    service_pb2_grpc = import_module("rocketmq.grpc_protocol.service_pb2_grpc")

    channel = grpc.insecure_channel(address, options=_OPTIONS)
    stub = service_pb2_grpc.MessagingServiceStub(channel)
    client_id = f"harness@{uuid.uuid4().hex}"
    headers = (
        ("x-mq-language", "PYTHON"),
        ("x-mq-protocol", "GRPC_V2"),
        ("x-mq-client-version", "5.1.2"),
        ("x-mq-client-id", client_id),
    )

    def send(request: dict[str, Any]) -> Mapping[str, Any]:
        until = time.monotonic() + request["timeout_s"]
        try:
            grpc.channel_ready_future(channel).result(timeout=request["timeout_s"])
        except grpc.FutureTimeoutError:
            return {"refused": f"no connection to the proxy {address} in time"}
        message = definition.Message(
            topic=definition.Resource(name=request["topic"]),
            body=request["body"].encode(),
            system_properties=definition.SystemProperties(
                message_id=_message_id(),
                message_type=definition.MessageType.NORMAL,
                body_encoding=definition.Encoding.IDENTITY,
                born_host="harness",
            ),
        )
        message.system_properties.born_timestamp.GetCurrentTime()
        left = until - time.monotonic()
        if left <= 0:
            return {"refused": "no time left for the request"}
        try:
            reply = stub.SendMessage(service_pb2.SendMessageRequest(messages=[message]), timeout=left, metadata=headers)
        except grpc.RpcError as e:
            return {"broken": f"{e.code().name}: {e.details()}"}
        entry = reply.entries[0] if reply.entries else None
        status = entry.status if entry is not None else reply.status
        answer = {"code": status.code, "name": definition.Code.Name(status.code), "why": status.message}
        if entry is not None and entry.message_id:
            answer |= {"offset": entry.offset, "message_id": entry.message_id}
        return answer

    return {"send": send}


def _message_id() -> str:
    """As the client would make it: version 01, then 32 hex digits (`MessageIdCodec`)."""
    return f"01{uuid.uuid4().hex.upper()}"


if __name__ == "__main__":
    serve(open_)
