"""Linearizability: is there an order of all operations that respects real time and that the object could have taken?

>>> from checkers.linearizability import CasRegister, Linearizable, check   # doctest: +SKIP
>>> check(history.by_key["k1"], CasRegister()).verdict                      # doctest: +SKIP

A history becomes integers (`encode`), and `decide` picks a near-linear special case (`monitors`), or goes through the
searches (`search.portfolio`). Every `valid` carries a witness that was replayed (`witness`), every `invalid` the op
that cannot be placed and a small core of ops that contradict each other (`explain`).

Two ways around single ops: thousands of histories in one compiled call (`batch`), and objects of a million ops from
calls or Parquet columns straight to a special case (`direct`, `arrow`).
"""

from checkers.linearizability.budget import Budget
from checkers.linearizability.check import check, check_keys
from checkers.linearizability.checker import Linearizable
from checkers.linearizability.history.encode import Problem, encode
from checkers.linearizability.models import MODELS
from checkers.linearizability.models.containers import Counter, FifoQueue, GrowOnlySet, Set, Stack, UnorderedQueue
from checkers.linearizability.models.kv import KV
from checkers.linearizability.models.locks import FencedLock, Mutex, ReentrantLock
from checkers.linearizability.models.log import Log
from checkers.linearizability.models.registers import CasRegister, MultiRegister, Register
from checkers.linearizability.models.specification import INCONSISTENT, Inconsistent, Model, Transition
from checkers.linearizability.result import LinearResult
from checkers.linearizability.witness import verify_witness

__all__ = [
    "INCONSISTENT",
    "KV",
    "MODELS",
    "Budget",
    "CasRegister",
    "Counter",
    "FencedLock",
    "FifoQueue",
    "GrowOnlySet",
    "Inconsistent",
    "LinearResult",
    "Linearizable",
    "Log",
    "Model",
    "MultiRegister",
    "Mutex",
    "Problem",
    "ReentrantLock",
    "Register",
    "Set",
    "Stack",
    "Transition",
    "UnorderedQueue",
    "check",
    "check_keys",
    "encode",
    "verify_witness",
]
