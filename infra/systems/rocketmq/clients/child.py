# SPDX-License-Identifier: Apache-2.0
"""The far end of `worker`: a process that does one thing after the other and answers in lines of JSON.

It uses nothing but the standard library, because it runs beside other people's packages.
"""

from __future__ import annotations

import json
import os
import queue
import sys
import threading
from collections.abc import Callable, Mapping
from typing import Any

Handler = Callable[[dict[str, Any]], Mapping[str, Any]]


def serve(open_: Callable[[], Mapping[str, Handler]]) -> None:
    """Prepares (`open_`) and reports that, then answers each request `{"do": NAME, ...}` by the handler of that name,
    until the input ends.

    An exception of a handler is answered as `{"error": class, "why": text}`. Libraries may print anything: their
    standard output goes to the file of the errors.
    """
    answers = os.fdopen(os.dup(1), "w", buffering=1)
    os.dup2(2, 1)

    def answer(reply: Mapping[str, Any]) -> None:
        answers.write(json.dumps(reply) + "\n")

    try:
        handlers = open_()
    except Exception as e:
        answer({"error": type(e).__name__, "why": _line(e)})
        return
    answer({"ready": True})
    requests: queue.SimpleQueue[dict[str, Any]] = queue.SimpleQueue()
    threading.Thread(target=_read, args=(requests,), daemon=True).start()
    while True:
        request = requests.get()
        try:
            answer(handlers[request["do"]](request))
        except Exception as e:
            answer({"error": type(e).__name__, "why": _line(e)})


def _read(requests: queue.SimpleQueue[dict[str, Any]]) -> None:
    """Reads requests as they come. When the input ends, the process ends, even if a call in it hangs."""
    for line in sys.stdin:
        requests.put(json.loads(line))
    os._exit(0)


def _line(error: BaseException) -> str:
    lines = str(error).strip().splitlines()
    return lines[0][:300] if lines else ""
