# SPDX-License-Identifier: Apache-2.0
"""Linearizability: does an order of all operations exist that respects real time and that the object allows?

>>> from checkers.linearizability import CasRegister, Linearizable, check   # doctest: +SKIP
>>> check(history.by_key["k1"], CasRegister()).verdict                      # doctest: +SKIP

**From a history to a verdict.** `check` takes the calls of one object (locality: keys are checked one by one).
`history.encode` makes integers of them: an op is a *kind* (its effect, as the model sees it), and a history is a list
of calls and returns. A call that failed is left out. A call of unknown outcome is *pending for ever*: it may take
effect at any time after it was called, or never; if it could only have read, it is left out. A model is an initial
state and a pure function `step` (`models.specification`); `history.table` caches the results of `step`, and
`closed_table` makes an array of them if all states can be enumerated. Then `decide` tries, in this order:

1. *Monitors* (`fast`, `monitors`). If values are unique, a value that a client saw identifies its op, and no search is
   needed: near-linear time for registers, FIFO queues, sets, logs, strings and mutexes.
2. *Partition* (`history.partition`). A set with queries of single elements is one object for each element.
3. *Searches*, one after the other, each with a number of steps (`search.portfolio`):
   WGL (`search.wgl`) goes depth first, as Porcupine and Knossos do, and finds an order if many exist;
   just-in-time linearization (`search.jit_linearization`; Lowe 2017) keeps all configurations that are possible at each
   return, and is complete; CEGAR (`search.cegar`) counts unknown ops only as exactly as the history makes necessary,
   and refutes histories with many of them; state flow (`search.state_flow`) compares how often each state was entered
   and left. `compiled` has the same searches for Numba; a process loads them when they pay (`unloaded`).

Two ways avoid an object for each op: `batch` checks thousands of histories in one compiled call, and `direct` takes a
history of a million ops from calls or Parquet columns (`history.op_columns`, `history.arrow`) to a monitor.

**Why a verdict is right.** `valid` means that an order was found and *replayed* (`witness`, which shares no code with
monitors and searches); an order that fails its replay makes the verdict `unknown`, with a message that asks for a
report. A batch keeps no orders: `BatchResult.witness` finds and replays one on request. `invalid` has no such
certificate. It names the earliest return that proves the violation and a *core* (`evidence`): a few acknowledged ops
that contradict each other whatever the outcome of all others, found by sound relaxations only, each decided again. The
searches are tested against brute force, against each other and against mutants of themselves. docs/checking.md lists
for each path its evidence, and the test that would find an error in it. `unknown` names the exhausted limit.

**What is different from Porcupine and Knossos.**

* Unknown ops stay pending and cost little: equal ones are counted, not enumerated (CEGAR counts them coarsely first).
* Just-in-time linearization, and not only a depth-first search: an invalid history does not have to be exhausted.
* States are integers of a closed table, so that compiled code never calls a model; states that no op of the history
  can distinguish are merged first (`Model.narrow`).
* Monitors decide what a search cannot: a million ops with unique values, whatever the number of clients.
* Budgets are counts of steps and not times (`budget`): the same history has the same verdict on every machine.
* A model's promises (`pure`, `blind`) are verified at each step that is taken.
* A violation comes with a core and with the states that were possible, and not only with a partial linearization.

**Where to begin.** `models/registers.py` and `models/specification.py` (models), `history/encode.py` (the input of a
search), `search/jit_linearization.py` (the complete search, in plain Python: the specification of the compiled one),
`decide.py` (the order of the methods), `witness.py` (the replay), `monitors/registers.py` (a special case).
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
from checkers.linearizability.models.nondeterministic import NondeterministicModel
from checkers.linearizability.models.registers import CasRegister, MultiRegister, Register
from checkers.linearizability.models.specification import ANYTHING, INCONSISTENT, Inconsistent, Model, Transition
from checkers.linearizability.result import LinearResult
from checkers.linearizability.witness import verify_witness

__all__ = [
    "ANYTHING",
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
    "NondeterministicModel",
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
