# SPDX-License-Identifier: Apache-2.0
"""The process of a gRPC client: `python -m infra.systems.rocketmq.clients.proxy_child FOLDER`, FOLDER having its
packages.

Of rocketmq-python-client only the generated protocol code is used: its producer sends three times behind one `send`,
and reports the last of three errors alone. Its package is entered without its `__init__`, which would start logs and
metrics.

Each request names the proxy, as `address`. `send`, `recall` and `end` are one request each. `listen` keeps a Telemetry
stream open, as a producer of the topics that it names, and returns what the proxy asked on it. `receive`, `ack` and
`extend` are one request each too, of a simple consumer, whose Telemetry stream is opened first: a proxy serves no
others.
"""

from __future__ import annotations

import queue
import sys
import threading
import time
import types
import uuid
from collections.abc import Callable, Iterator, Mapping
from functools import cache
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

_AGAIN_S: Final = 2.0
"""The time between two settings on a stream, which take the place of heartbeats: a proxy forgets producers, and after
its pause it may take an older stream of the same client for the valid one (`GrpcClientChannel.setClientObserver`).
"""

_ANSWERS_S: Final = 4.0
"""The time limit of the proxy's answer to settings."""


class Packages:
    """The modules of the packages in a folder. Raises ImportError without them."""

    def __init__(self, folder: str) -> None:
        sys.path.insert(0, folder)
        bare = types.ModuleType("rocketmq")
        bare.__path__ = [str(Path(folder) / "rocketmq")]
        sys.modules["rocketmq"] = bare
        self.grpc: Any = import_module("grpc")
        self.definition: Any = import_module("rocketmq.grpc_protocol.definition_pb2")
        self.service: Any = import_module("rocketmq.grpc_protocol.service_pb2")
        self.stubs: Any = import_module("rocketmq.grpc_protocol.service_pb2_grpc")


class Proxy:
    """A connection to one proxy, and the requests of a producer."""

    def __init__(self, packages: Packages, address: str) -> None:
        self.grpc, self.definition, self.service = packages.grpc, packages.definition, packages.service
        self._stubs, self.address = packages.stubs, address
        self.headers = (
            ("x-mq-language", "PYTHON"),
            ("x-mq-protocol", "GRPC_V2"),
            ("x-mq-client-version", "5.1.2"),
            ("x-mq-client-id", f"harness@{uuid.uuid4().hex}"),
        )
        self.connect()

    def connect(self) -> None:
        """Makes a new connection in place of the former one."""
        self.channel = self.grpc.insecure_channel(self.address, options=_OPTIONS)
        self.stub = self._stubs.MessagingServiceStub(self.channel)

    def send(self, request: dict[str, Any]) -> Mapping[str, Any]:
        """Sends a message: `kind` NORMAL, DELAY (with `deliver_ms`) or TRANSACTION."""
        definition = self.definition
        message = definition.Message(
            topic=definition.Resource(name=request["topic"]),
            body=request["body"].encode(),
            system_properties=definition.SystemProperties(
                message_id=_message_id(),
                message_type=definition.MessageType.Value(request["kind"]),
                body_encoding=definition.Encoding.IDENTITY,
                born_host="harness",
            ),
        )
        message.system_properties.born_timestamp.GetCurrentTime()
        if "deliver_ms" in request:
            message.system_properties.delivery_timestamp.FromMilliseconds(request["deliver_ms"])
        grpc_request = self.service.SendMessageRequest(messages=[message])
        reply = self.ask(request["timeout_s"], self.stub.SendMessage, grpc_request)
        if isinstance(reply, dict):
            return reply
        entry = reply.entries[0] if reply.entries else None
        answer = self.answer(entry.status if entry is not None else reply.status)
        if entry is not None and entry.message_id:
            answer |= {"offset": entry.offset, "message_id": entry.message_id}
            for name in ("transaction_id", "recall_handle"):
                if getattr(entry, name):
                    answer[name] = getattr(entry, name)
        return answer

    def recall(self, request: dict[str, Any]) -> Mapping[str, Any]:
        """Takes a delayed message back."""
        topic = self.definition.Resource(name=request["topic"])
        grpc_request = self.service.RecallMessageRequest(topic=topic, recall_handle=request["handle"])
        reply = self.ask(request["timeout_s"], self.stub.RecallMessage, grpc_request)
        return reply if isinstance(reply, dict) else self.answer(reply.status)

    def end(self, request: dict[str, Any]) -> Mapping[str, Any]:
        """Ends a transaction: `as` COMMIT or ROLLBACK; `asked`: the answer to a question."""
        definition = self.definition
        grpc_request = self.service.EndTransactionRequest(
            topic=definition.Resource(name=request["topic"]),
            message_id=request["message_id"],
            transaction_id=request["transaction_id"],
            resolution=definition.TransactionResolution.Value(request["as"]),
            source=definition.TransactionSource.Value("SOURCE_SERVER_CHECK" if request["asked"] else "SOURCE_CLIENT"),
        )
        reply = self.ask(request["timeout_s"], self.stub.EndTransaction, grpc_request)
        return reply if isinstance(reply, dict) else self.answer(reply.status)

    def ask(self, timeout_s: float, call: Callable[..., Any], request: Any) -> Any:
        """The reply to one attempt; a dict with the reason without one."""
        until = time.monotonic() + timeout_s
        try:
            self.grpc.channel_ready_future(self.channel).result(timeout=timeout_s)
        except self.grpc.FutureTimeoutError:
            return {"refused": f"no connection to the proxy {self.address} in time"}
        left = until - time.monotonic()
        if left <= 0:
            return {"refused": "no time left for the request"}
        try:
            return call(request, timeout=left, metadata=self.headers)
        except self.grpc.RpcError as e:
            return {"broken": f"{e.code().name}: {e.details()}"}

    def answer(self, status: Any) -> dict[str, Any]:
        try:
            name = self.definition.Code.Name(status.code)
        except ValueError:  # of a later version
            name = "UNKNOWN"
        return {"code": status.code, "name": name, "why": status.message}


class Ear:
    """The Telemetry stream of a producer. A stream that broke is opened again by the next `listen`."""

    def __init__(self, proxy: Proxy) -> None:
        self._proxy = proxy
        self._stream: _Stream | None = None

    def listen(self, request: dict[str, Any]) -> Mapping[str, Any]:
        """Waits `wait_s` at most, and for a new stream. Returns `questions`, those that came since the last call, and
        without a stream the reason as `deaf`.
        """
        if self._stream is None:
            self._stream = _Stream(self._proxy, _producer(self._proxy, request["topics"]))
            self._stream.settled.wait(_ANSWERS_S)
        stream = self._stream
        stream.settle_again()
        questions = stream.take(request["wait_s"])
        deaf = stream.broken or stream.overdue
        if deaf is None:
            return {"questions": questions}
        self._stream = None
        stream.close()
        self._proxy.channel.close()
        self._proxy.connect()
        return {"questions": [*questions, *stream.take(0)], "deaf": deaf}


class Consumer:
    """A simple consumer of a group at one proxy. Its stream is opened by the first request, and opened again by the
    request that finds it broken.
    """

    def __init__(self, proxy: Proxy) -> None:
        self._proxy = proxy
        self._stream: _Stream | None = None

    def receive(self, request: dict[str, Any]) -> Mapping[str, Any]:
        """Takes `most` messages at most of a `topic`, hidden for `invisible_ms`; the broker waits `wait_s` for one.
        Returns `messages`: the body and the handle of each.
        """
        definition, proxy = self._proxy.definition, self._proxy
        grpc_request = proxy.service.ReceiveMessageRequest(
            group=definition.Resource(name=request["group"]),
            message_queue=definition.MessageQueue(topic=definition.Resource(name=request["topic"])),
            filter_expression=_everything(definition),
            batch_size=request["most"],
            auto_renew=False,
        )
        grpc_request.invisible_duration.FromMilliseconds(request["invisible_ms"])
        grpc_request.long_polling_timeout.FromMilliseconds(int(request["wait_s"] * 1000))

        def call(one: Any, **options: Any) -> list[Any]:
            return list(proxy.stub.ReceiveMessage(one, **options))

        parts = self._ask(request, call, grpc_request)
        if isinstance(parts, dict):
            return parts
        statuses = [part.status for part in parts if part.HasField("status")]
        messages = [_delivery(part.message) for part in parts if part.HasField("message")]
        bad = [status for status in statuses if status.code != definition.Code.OK]
        if not statuses or (bad and messages) or not (bad or messages):
            told = ", ".join(f"{status.code} {status.message}" for status in statuses) or "no status"
            return {"broken": f"the answer is not complete: {told}, {len(messages)} messages"}
        return {**proxy.answer(bad[0] if bad else statuses[0]), "messages": messages}

    def ack(self, request: dict[str, Any]) -> Mapping[str, Any]:
        """Acknowledges the delivery that `handle` names."""
        definition, proxy = self._proxy.definition, self._proxy
        grpc_request = proxy.service.AckMessageRequest(
            group=definition.Resource(name=request["group"]),
            topic=definition.Resource(name=request["topic"]),
            entries=[proxy.service.AckMessageEntry(receipt_handle=request["handle"])],
        )
        reply = self._ask(request, proxy.stub.AckMessage, grpc_request)
        if isinstance(reply, dict):
            return reply
        return proxy.answer(reply.entries[0].status if reply.entries else reply.status)

    def extend(self, request: dict[str, Any]) -> Mapping[str, Any]:
        """Makes a delivery stay hidden for `invisible_ms` from now on. Returns its new `handle`."""
        definition, proxy = self._proxy.definition, self._proxy
        grpc_request = proxy.service.ChangeInvisibleDurationRequest(
            group=definition.Resource(name=request["group"]),
            topic=definition.Resource(name=request["topic"]),
            receipt_handle=request["handle"],
        )
        grpc_request.invisible_duration.FromMilliseconds(request["invisible_ms"])
        reply = self._ask(request, proxy.stub.ChangeInvisibleDuration, grpc_request)
        if isinstance(reply, dict):
            return reply
        return {**proxy.answer(reply.status), "handle": reply.receipt_handle}

    def _ask(self, request: dict[str, Any], call: Callable[..., Any], grpc_request: Any) -> Any:
        """The reply to one attempt, as of `Proxy.ask`. Without a stream nothing is sent."""
        until = time.monotonic() + request["timeout_s"]
        stream = self._stream
        if stream is None:
            settings = _simple_consumer(self._proxy, request["group"], request["topics"])
            stream = self._stream = _Stream(self._proxy, settings)
        stream.settle_again()
        stream.answered.wait(min(request["timeout_s"], _ANSWERS_S))
        why = stream.broken or stream.overdue or (None if stream.answered.is_set() else "no answer to the settings yet")
        if stream.broken or stream.overdue:
            self._stream = None
            stream.close()
            self._proxy.channel.close()
            self._proxy.connect()
        if why is not None:
            return {"refused": f"the proxy {self._proxy.address} has no stream: {why}"}
        return self._proxy.ask(max(0.0, until - time.monotonic()), call, grpc_request)


class _Stream:
    """One Telemetry stream. settled: set when the proxy has answered the last settings, or the stream broke. answered:
    the same, of the first settings. broken: why.
    """

    def __init__(self, proxy: Proxy, settings: Any) -> None:
        self._proxy = proxy
        self.settled = threading.Event()
        self.answered = threading.Event()
        self.broken: str | None = None
        self._commands: queue.SimpleQueue[Any] = queue.SimpleQueue()
        """The commands to write; None ends the stream."""
        self._questions: queue.SimpleQueue[dict[str, Any] | None] = queue.SimpleQueue()
        """None: the stream has ended."""
        self._settings = settings
        self._settle()
        self._call = proxy.stub.Telemetry(self._written(), metadata=proxy.headers)
        threading.Thread(target=self._read, daemon=True).start()

    @property
    def overdue(self) -> str | None:
        """A text if the proxy owes an answer to the settings for too long."""
        late = not self.settled.is_set() and time.monotonic() > self._since + _ANSWERS_S
        return f"the proxy {self._proxy.address} did not answer the settings in time" if late else None

    def settle_again(self) -> None:
        """Sends the settings again if the last ones were answered, and it is time."""
        if self.settled.is_set() and time.monotonic() > self._since + _AGAIN_S:
            self._settle()

    def _settle(self) -> None:
        self.settled.clear()
        self._since = time.monotonic()
        self._commands.put(self._settings)

    def take(self, wait_s: float) -> list[dict[str, Any]]:
        """The questions that have come; waits for the first one, or for the end of the stream."""
        found: list[dict[str, Any] | None] = []
        try:
            found.append(self._questions.get(timeout=wait_s) if wait_s > 0 else self._questions.get_nowait())
            while True:
                found.append(self._questions.get_nowait())
        except queue.Empty:
            return [question for question in found if question is not None]

    def close(self) -> None:
        self._commands.put(None)
        self._call.cancel()

    def _written(self) -> Iterator[Any]:
        while (command := self._commands.get()) is not None:
            yield command

    def _read(self) -> None:
        try:
            for command in self._call:
                match command.WhichOneof("command"):
                    case "settings":
                        self.settled.set()
                        self.answered.set()
                    case "recover_orphaned_transaction_command":
                        self._questions.put(_question(command.recover_orphaned_transaction_command))
            self.broken = "the proxy ended the stream"
        except self._proxy.grpc.RpcError as e:
            self.broken = f"{e.code().name}: {e.details()}"
        self.settled.set()
        self.answered.set()
        self._questions.put(None)


def _producer(proxy: Proxy, topics: list[str]) -> Any:
    """The settings of a producer of topics."""
    definition = proxy.definition
    publishing = definition.Publishing(topics=[definition.Resource(name=topic) for topic in topics])
    return _command(proxy, definition.Settings(client_type=definition.ClientType.PRODUCER, publishing=publishing))


def _simple_consumer(proxy: Proxy, group: str, topics: list[str]) -> Any:
    """The settings of a simple consumer that gets every message of topics."""
    definition = proxy.definition
    entries = [
        definition.SubscriptionEntry(topic=definition.Resource(name=topic), expression=_everything(definition))
        for topic in topics
    ]
    subscription = definition.Subscription(group=definition.Resource(name=group), subscriptions=entries)
    kind = definition.ClientType.SIMPLE_CONSUMER
    return _command(proxy, definition.Settings(client_type=kind, subscription=subscription))


def _command(proxy: Proxy, settings: Any) -> Any:
    host, _, port = proxy.address.rpartition(":")
    settings.access_point.scheme = proxy.definition.AddressScheme.IPv4
    settings.access_point.addresses.add(host=host, port=int(port))
    settings.request_timeout.FromSeconds(3)
    return proxy.service.TelemetryCommand(settings=settings)


def _everything(definition: Any) -> Any:
    return definition.FilterExpression(type=definition.FilterType.TAG, expression="*")


def _delivery(message: Any) -> dict[str, str]:
    return {"body": message.body.decode("latin-1"), "handle": message.system_properties.receipt_handle}


def _question(command: Any) -> dict[str, Any]:
    message = command.message
    return {
        "topic": message.topic.name,
        "body": message.body.decode("latin-1"),
        "message_id": message.system_properties.message_id,
        "transaction_id": command.transaction_id,
    }


def open_() -> Mapping[str, Handler]:
    packages = Packages(sys.argv[1])

    @cache
    def at(address: str) -> Proxy:
        return Proxy(packages, address)

    @cache
    def ear(address: str) -> Ear:
        return Ear(Proxy(packages, address))

    @cache
    def consumer(address: str, group: str) -> Consumer:
        return Consumer(Proxy(packages, address))

    def of(request: dict[str, Any]) -> Consumer:
        return consumer(request["address"], request["group"])

    return {
        "send": lambda request: at(request["address"]).send(request),
        "recall": lambda request: at(request["address"]).recall(request),
        "end": lambda request: at(request["address"]).end(request),
        "receive": lambda request: of(request).receive(request),
        "ack": lambda request: of(request).ack(request),
        "extend": lambda request: of(request).extend(request),
        "listen": lambda request: ear(request["address"]).listen(request),
    }


def _message_id() -> str:
    """As the client would make it: version 01, then 32 hex digits (`MessageIdCodec`)."""
    return f"01{uuid.uuid4().hex.upper()}"


if __name__ == "__main__":
    serve(open_)
