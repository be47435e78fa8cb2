# SPDX-License-Identifier: Apache-2.0
"""The process of a native client: `python -m infra.systems.rocketmq.clients.native_child FOLDER`,
rocketmq-client-python in FOLDER.

That package binds all of librocketmq's functions when it is imported, and one that is missing would end it. Here a
missing one is replaced by a stub and reported by name, so that operations that need it are refused, and the rest works.
"""

from __future__ import annotations

import ctypes
import sys
from collections.abc import Mapping
from importlib import import_module
from typing import Any

from infra.systems.rocketmq.clients.child import Handler, serve

_MISSING: list[str] = []


def tolerate_missing_functions() -> None:
    """Makes `ctypes` return a stub for a missing function of a library with `rocketmq` in its name."""
    found = ctypes.CDLL.__getattr__

    def find(library: ctypes.CDLL, name: str) -> Any:
        try:
            return found(library, name)
        except AttributeError:
            if name.startswith("__") or "rocketmq" not in str(library._name):
                raise
            _MISSING.append(name)
            stub = ctypes.CFUNCTYPE(ctypes.c_int)(lambda: -1)
            setattr(library, name, stub)
            return stub

    ctypes.CDLL.__getattr__ = find  # type: ignore[method-assign]


def open_() -> Mapping[str, Handler]:
    sys.path.insert(0, sys.argv[1])
    tolerate_missing_functions()
    client, ffi = import_module("rocketmq.client"), import_module("rocketmq.ffi")

    producers: list[Any] = []

    def library(_: dict[str, Any]) -> Mapping[str, Any]:
        return {"path": str(ffi._DYLIB_PATH), "missing": sorted(set(_MISSING))}

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
