# SPDX-License-Identifier: Apache-2.0
"""A client of Redis for `harness run --workload any`: registers, locks and queues.

Arguments: the address of the primary, that of this client's own node, the time for a request in seconds; `log`,
`counter` or `set` if the keys are such objects; `replica-reads`: reads go to the client's own node, which may be a
replica; and `expiring-locks`: a lock ends after 100 ms, even if its holder has not released it.
"""

import json
import socket
import sys
import uuid

PRIMARY, MINE, TIMEOUT = sys.argv[1], sys.argv[2], float(sys.argv[3])
READ = MINE if "replica-reads" in sys.argv else PRIMARY
EXPIRY = ("PX", 100) if "expiring-locks" in sys.argv else ()
ME = uuid.uuid4().hex
CAS = "if redis.call('get', KEYS[1]) == ARGV[1] then redis.call('set', KEYS[1], ARGV[2]) return 1 end return 0"
RELEASE = "if redis.call('get', KEYS[1]) == ARGV[1] then return redis.call('del', KEYS[1]) end return 0"
connections = {}


def call(*words, at=PRIMARY):
    """Sends a command, and returns the reply: a number, a text or None. Raises ValueError for an error."""
    if at not in connections:
        connections[at] = socket.create_connection((*at.split(":"), 6379)[:2], TIMEOUT).makefile("rwb")
    parts = [str(word).encode() for word in words]
    connections[at].write(b"*%d\r\n" % len(parts) + b"".join(b"$%d\r\n%s\r\n" % (len(p), p) for p in parts))
    connections[at].flush()
    return reply(connections[at])


def reply(stream):
    line = stream.readline().decode().strip()
    kind, rest = line[:1], line[1:]
    if kind == "-":
        raise ValueError(rest)
    if kind == "$":
        return None if rest == "-1" else stream.read(int(rest) + 2)[:-2].decode()
    if kind == "*":
        return [reply(stream) for _ in range(int(rest))]
    if kind == "":
        raise ConnectionError("the server closed the connection")
    return int(rest) if kind == ":" else rest


def number(text):
    return None if text is None else int(text)


OPERATIONS = {
    "read": lambda key, _: number(call("GET", key, at=READ)),
    "write": lambda key, value: call("SET", key, value),
    "cas": lambda key, pair: call("EVAL", CAS, 1, key, *pair) == 1,
    "acquire": lambda key, _: call("SET", key, ME, "NX", *EXPIRY) == "OK",
    "release": lambda key, _: call("EVAL", RELEASE, 1, key, ME) == 1,
    "enqueue": lambda key, value: call("RPUSH", key, value),
    "dequeue": lambda key, _: number(call("LPOP", key)),
}
OBJECTS = {
    "log": {
        "append": lambda key, value: call("RPUSH", key, value) - 1,
        "read": lambda key, offset: number(call("LINDEX", key, offset, at=READ)),
    },
    "counter": {
        "add": lambda key, value: call("INCRBY", key, value),
        "read": lambda key, _: int(call("GET", key, at=READ) or 0),
    },
    "set": {
        "add": lambda key, value: call("SADD", key, value),
        "read": lambda key, _: [int(element) for element in call("SMEMBERS", key, at=READ)],
    },
}
OPERATIONS |= next((OBJECTS[name] for name in OBJECTS if name in sys.argv), {})
for line in sys.stdin:
    request = json.loads(line)
    try:
        result = OPERATIONS[request["op"]](request["key"], request["value"])
        answer = {"type": "fail", "error": "refused"} if result is False else {"type": "ok", "value": result}
    except (ValueError, ConnectionRefusedError) as problem:  # certainly not executed
        answer = {"type": "fail", "error": str(problem)}
    except OSError as problem:  # perhaps it was executed
        answer = {"type": "info", "error": str(problem)}
    print(json.dumps(answer), flush=True)
