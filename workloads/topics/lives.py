# SPDX-License-Identifier: Apache-2.0
"""The lives of topics, as the answers to their administrator show them.

A *life* of a topic begins with the request that makes it and ends with its deletion. The next one has the same name.

An unanswered request may still be executed. So a topic with an unanswered deletion, or with an unanswered change and a
deletion after it, is not used again (`retired`): a late execution could end its next life, or begin one. A change
without an answer is repeated as it was: then its late execution changes nothing.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Final, Literal

from results.op import FAIL, INVOKE, OK, Op

UPDATE: Final = "update-topic"
DELETE: Final = "delete-topic"
DESCRIBE: Final = "topic"

State = Literal["coming", "open", "going", "gone", "retired"]


@dataclass(frozen=True, slots=True)
class Life:
    """The present life of a topic.

    number  1 for the first one.
    queues  the number of its queues on each broker group, as last acknowledged; 0: its creation was not.
    pending the number of queues of a change without an answer so far, which must be repeated; None: all were answered.
    unsure  a change of this life was never answered.
    """

    number: int
    state: State
    queues: int = 0
    pending: int | None = None
    unsure: bool = False


Lives = Mapping[str, Life]
"""Topic -> its present life."""


def after(lives: Lives, op: Op) -> Lives:
    """The lives after an invocation or completion of an administrator's op; unchanged after any other op."""
    if op.f not in (UPDATE, DELETE) or op.key is None:
        return lives
    now = lives.get(op.key, Life(0, "gone"))
    following = _updated(now, op) if op.f == UPDATE else _deleted(now, op)
    return lives if following == now else {**lives, op.key: following}


def _updated(now: Life, op: Op) -> Life:
    if op.type == INVOKE:
        life = Life(now.number + 1, "coming") if now.state == "gone" else now
        return replace(life, pending=int(op.value))
    if op.type == OK:
        return replace(now, state="open", queues=int(op.value), pending=None)
    if op.type == FAIL:
        # An earlier attempt may have had an effect.
        return now if now.unsure else replace(now, state="open" if now.queues else "gone", pending=None)
    return replace(now, unsure=True)


def _deleted(now: Life, op: Op) -> Life:
    if op.type == INVOKE:
        return replace(now, state="going")
    if op.type == OK:
        return replace(now, state="retired" if now.unsure else "gone", queues=0, pending=None)
    if op.type == FAIL:
        return replace(now, state="open" if now.queues else "coming")
    return replace(now, state="retired")
