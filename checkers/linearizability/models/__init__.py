# SPDX-License-Identifier: Apache-2.0
"""The models of objects that come with the checker, by the names that users write.

A model is registered here; the special methods of the engine for it are in `checkers.linearizability.fast`.
`specification` defines the interface: a new model takes some ten lines.
"""

from __future__ import annotations

from typing import Any, Final

from checkers.linearizability.models.containers import Counter, FifoQueue, GrowOnlySet, Set, Stack, UnorderedQueue
from checkers.linearizability.models.kv import KV
from checkers.linearizability.models.locks import FencedLock, Mutex, ReentrantLock
from checkers.linearizability.models.log import Log
from checkers.linearizability.models.registers import CasRegister, MultiRegister, Register
from checkers.linearizability.models.specification import Model

MODELS: Final[dict[str, type[Model[Any]]]] = {
    model.name: model
    for model in (
        *(Register, CasRegister, MultiRegister, KV, Counter, GrowOnlySet, Set, FifoQueue, UnorderedQueue, Stack),
        *(Mutex, FencedLock, ReentrantLock, Log),
    )
}
"""The models by the names users write."""
