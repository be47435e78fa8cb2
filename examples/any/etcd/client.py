# SPDX-License-Identifier: Apache-2.0
"""A client of etcd for `harness run --workload any`: registers, locks and queues over etcd's JSON gateway.

Arguments: the address of a member, the time for a request in seconds, and `serializable` for reads that one member
answers alone (they may be stale).
"""

import json
import sys
import urllib.request
import uuid
from base64 import b64decode, b64encode

URL, TIMEOUT, ME = sys.argv[1], float(sys.argv[2]), uuid.uuid4().hex


def call(path, **body):
    with urllib.request.urlopen(f"{URL}/v3/kv/{path}", json.dumps(body).encode(), TIMEOUT) as answer:
        return json.load(answer)


def b64(text):
    return b64encode(str(text).encode()).decode()


def find(key, **more):
    kvs = call("range", key=b64(key), serializable="serializable" in sys.argv, **more).get("kvs", [])
    return [(int(b64decode(kv["value"])), kv) for kv in kvs]


def put(key, new, **condition):
    """Writes if the condition holds, and returns whether it did."""
    change = {"requestPut": {"key": b64(key), "value": b64(new)}}
    compare = [{"key": b64(key), **condition}] if condition else []
    return call("txn", compare=compare, success=[change]).get("succeeded", False)


def delete(key, **condition):
    change = {"requestDeleteRange": {"key": key}}
    return call("txn", compare=[{"key": key, **condition}], success=[change]).get("succeeded", False)


def dequeue(key):
    """Takes the oldest element; begins again if another client takes it first."""
    while found := find(f"{key}/", rangeEnd=b64(f"{key}0"), limit=1, sortTarget="CREATE", sortOrder="ASCEND"):
        value, kv = found[0]
        if delete(kv["key"], target="MOD", modRevision=kv["mod_revision"]):
            return value


OPERATIONS = {
    "read": lambda key, _: next((value for value, _ in find(key)), None),
    "write": put,
    "cas": lambda key, pair: put(key, pair[1], target="VALUE", value=b64(pair[0])),
    "acquire": lambda key, _: put(key, ME, target="CREATE", createRevision="0"),
    "release": lambda key, _: delete(b64(key), target="VALUE", value=b64(ME)),
    "enqueue": lambda key, value: put(f"{key}/{value}", value),
    "dequeue": lambda key, _: dequeue(key),
}
for line in sys.stdin:
    request = json.loads(line)
    try:
        result = OPERATIONS[request["op"]](request["key"], request["value"])
        answer = {"type": "fail", "error": "refused"} if result is False else {"type": "ok", "value": result}
    except OSError as problem:  # perhaps it was executed
        answer = {"type": "info", "error": str(problem)}
    print(json.dumps(answer), flush=True)
