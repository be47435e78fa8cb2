# SPDX-License-Identifier: Apache-2.0
"""A program that pretends to be RocketMQ's proxy with one broker behind it: `python fake_proxy.py FOLDER RECORD`.
FOLDER has the packages of the gRPC client. It prints its port, and writes each request as a line of JSON to RECORD.

The first word of a topic names the type of its messages. The second one says what goes wrong:

    deaf      the proxy takes no producer of this topic
    forgets   the proxy does not know the half message when it is ended
    cuts      the proxy ends the stream of its producer after each question
    silent    the proxy answers only the first settings of a stream
    half      the answer to a receive ends with an error after its first message

Half messages that nobody ended within 0.2 s are asked about, once.
"""

from __future__ import annotations

import json
import sys
import threading
import time
import types
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from importlib import import_module
from pathlib import Path
from queue import SimpleQueue
from typing import Any

folder, record = sys.argv[1:3]
sys.path.insert(0, folder)
bare = types.ModuleType("rocketmq")
bare.__path__ = [str(Path(folder) / "rocketmq")]
sys.modules["rocketmq"] = bare
grpc = import_module("grpc")
definition = import_module("rocketmq.grpc_protocol.definition_pb2")
service = import_module("rocketmq.grpc_protocol.service_pb2")
stubs = import_module("rocketmq.grpc_protocol.service_pb2_grpc")

ASKS_AFTER_S = 0.2


def status(code: str, why: str = "") -> Any:
    return definition.Status(code=definition.Code.Value(code), message=why or code)


def client(context: Any) -> str:
    return str(dict(context.invocation_metadata())["x-mq-client-id"])


class FakeProxy(stubs.MessagingServiceServicer):  # type: ignore[misc, name-defined]
    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.halves: dict[str, Any] = {}
        """transaction id -> its message."""
        self.handles: set[str] = set()
        self.producers: dict[str, tuple[SimpleQueue[Any], list[str]]] = {}
        """client -> what to write to its stream, and its topics."""
        self.number = 0
        self.stored: dict[str, list[Any]] = {}
        """topic -> its messages."""

    def note(self, f: str, **fields: Any) -> None:
        with self.lock, Path(record).open("a") as out:
            out.write(json.dumps({"f": f, **fields}) + "\n")

    def SendMessage(self, request: Any, context: Any) -> Any:
        (message,) = request.messages
        topic, facts = message.topic.name, message.system_properties
        kind = definition.MessageType.Name(facts.message_type)
        due = facts.delivery_timestamp.ToMilliseconds() if facts.HasField("delivery_timestamp") else None
        self.note("send", topic=topic, kind=kind, due=due, body=message.body.decode())
        if kind != topic.split("-")[0]:
            return service.SendMessageResponse(status=status("MESSAGE_PROPERTY_CONFLICT_WITH_TYPE"))
        self.number += 1
        done = service.SendResultEntry(status=status("OK"), message_id=facts.message_id, offset=self.number)
        self.stored.setdefault(topic, []).append(message)
        if kind == "DELAY":
            done.recall_handle = f"handle-{self.number}"
            self.handles.add(done.recall_handle)
        if kind == "TRANSACTION":
            done.transaction_id = f"T{self.number}"
            self.halves[done.transaction_id] = message
            threading.Timer(ASKS_AFTER_S, self.ask, (done.transaction_id,)).start()
        return service.SendMessageResponse(status=status("OK"), entries=[done])

    def RecallMessage(self, request: Any, context: Any) -> Any:
        self.note("recall", topic=request.topic.name, handle=request.recall_handle)
        known = request.recall_handle in self.handles
        self.handles.discard(request.recall_handle)
        return service.RecallMessageResponse(status=status("OK" if known else "INTERNAL_SERVER_ERROR", "recall failed"))

    def EndTransaction(self, request: Any, context: Any) -> Any:
        how, source = request.resolution, request.source
        self.note(
            "end",
            topic=request.topic.name,
            id=request.message_id,
            how=definition.TransactionResolution.Name(how),
            source=definition.TransactionSource.Name(source),
        )
        found = self.halves.pop(request.transaction_id, None)
        if found is None or "forgets" in request.topic.name:
            return service.EndTransactionResponse(
                status=status("INTERNAL_SERVER_ERROR", "cannot found transaction data")
            )
        return service.EndTransactionResponse(status=status("OK"))

    def ReceiveMessage(self, request: Any, context: Any) -> Iterator[Any]:
        topic, group = request.message_queue.topic.name, request.group.name
        hidden, wait = request.invisible_duration.ToMilliseconds(), request.long_polling_timeout.ToMilliseconds()
        known = client(context) in self.producers
        self.note("receive", topic=topic, group=group, hidden=hidden, wait=wait, most=request.batch_size, known=known)
        found = self.stored.pop(topic, [])[: request.batch_size]
        yield service.ReceiveMessageResponse(status=status("OK" if found else "MESSAGE_NOT_FOUND"))
        for at, message in enumerate(found):
            message.system_properties.receipt_handle = f"{at} 1700000000000 {hidden} 3 {at} a 0 {at} 4711"
            yield service.ReceiveMessageResponse(message=message)
            if "half" in topic:
                yield service.ReceiveMessageResponse(status=status("INTERNAL_SERVER_ERROR", "reset"))
                return

    def AckMessage(self, request: Any, context: Any) -> Any:
        (entry,) = request.entries
        self.note("ack", topic=request.topic.name, group=request.group.name, handle=entry.receipt_handle)
        done = service.AckMessageResultEntry(status=status("OK"), receipt_handle=entry.receipt_handle)
        return service.AckMessageResponse(status=status("OK"), entries=[done])

    def ChangeInvisibleDuration(self, request: Any, context: Any) -> Any:
        more = request.invisible_duration.ToMilliseconds()
        self.note("extend", topic=request.topic.name, handle=request.receipt_handle, more=more)
        if "forgets" in request.topic.name:
            return service.ChangeInvisibleDurationResponse(status=status("INVALID_RECEIPT_HANDLE"))
        return service.ChangeInvisibleDurationResponse(status=status("OK"), receipt_handle=f"{request.receipt_handle}+")

    def Telemetry(self, commands: Iterator[Any], context: Any) -> Iterator[Any]:
        settings = next(commands).settings
        entries = settings.subscription.subscriptions
        topics = [topic.name for topic in settings.publishing.topics] or [entry.topic.name for entry in entries]
        self.note("settings", topics=topics, kind=definition.ClientType.Name(settings.client_type))
        if any("deaf" in topic for topic in topics):
            context.abort(grpc.StatusCode.INVALID_ARGUMENT, "no such producer")
        written: SimpleQueue[Any] = SimpleQueue()
        self.producers[client(context)] = written, topics
        written.put(service.TelemetryCommand(settings=settings))
        threading.Thread(target=self.answer, args=(commands, written, topics), daemon=True).start()
        while (command := written.get()) is not None:
            yield command
            if any("cuts" in topic for topic in topics) and command.WhichOneof("command") != "settings":
                break
        del self.producers[client(context)]

    def answer(self, commands: Iterator[Any], written: SimpleQueue[Any], topics: list[str]) -> None:
        """Answers further settings on a stream."""
        try:
            for command in commands:
                self.note("again", topics=topics)
                if not any("silent" in topic for topic in topics):
                    written.put(service.TelemetryCommand(settings=command.settings))
        except Exception as e:  # grpc has no public class for the end of a stream
            self.note("end of stream", why=str(e))
        written.put(None)

    def ask(self, transaction: str) -> None:
        message = self.halves.get(transaction)
        if message is None:
            return
        asked = service.RecoverOrphanedTransactionCommand(message=message, transaction_id=transaction)
        for written, topics in list(self.producers.values()):
            if message.topic.name in topics:
                written.put(service.TelemetryCommand(recover_orphaned_transaction_command=asked))
                return


def main() -> None:
    server = grpc.server(ThreadPoolExecutor(8))
    stubs.add_MessagingServiceServicer_to_server(FakeProxy(), server)
    print(server.add_insecure_port("127.0.0.1:0"), flush=True)
    server.start()
    while True:
        time.sleep(60)


if __name__ == "__main__":
    main()
