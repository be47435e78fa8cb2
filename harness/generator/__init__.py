# SPDX-License-Identifier: Apache-2.0
"""Generators: the next ops of clients and nemesis, as pure values (`import harness.generator as gen`).

A generator has one method, `op(ctx)`. It returns nothing, ever again (None); "nothing yet" (`Pending`); or an
`Invocation` to execute now. With the answer comes the generator to call next; the called one has not changed. Events
(invocations and completions) reach it through `update`. So the future of a generator can be queried, it can be tested
by simulation in no time (`harness.run.simulate`), and the same seed gives the same ops.

Big generators are built from small ones:

    import harness.generator as gen
    from harness.generator import Invocation

    def read(n): return Invocation("read")
    def write(n): return Invocation("write", value=n)

    load = gen.key_window(rng, 10, 200, lambda key: gen.mix(rng, {read: 2, write: 1}))
    faults = gen.script([(5, Invocation("inject", value={"fault": "hammer-time"})), (15, Invocation("heal"))])
    main = gen.time_limit(60, gen.clients(gen.rate(100, load), faults))

Plain data are generators: an Invocation is itself, once; a function of n is what it returns for 0, 1, 2, ...; a
sequence is each of its elements in turn; None is nothing. Numbers and functions come first, the generator last.

| who          | clients, nemesis, on_threads, reserve, each_thread, each_process                                  |
| which        | any_, shortest_any, mix, flip_flop, drawn                                                         |
| how often    | limit, once, repeat, cycle, process_limit, concurrency_limit, until, until_ok                     |
| in order     | concat, phases, then (`>>`), synchronize                                                          |
| when         | rate, stagger, delay, time_limit, cycle_times, sleep, script                                      |
| on what      | sequential_keys, concurrent_keys, key_window                                                      |
| adapters     | map, f_map, filter, on_update, trace, validate, log                                               |

The design is Jepsen's (`generator.clj`), with these differences, each for a reason.

* A generator never returns an op of the future; it returns `Pending(until)`. So every answer is either used or
  keeps its state: no clock starts again because another generator was sooner, and no random draw is thrown away.
* Nothing polls. The caller sleeps until a completion or until the time named.
* Random numbers come only from the `random.Random` given at construction: a seed is split off it, and draw n is a
  function of (seed, n). Nothing else depends on timing, unless documented.
* Sets of threads are bits of a number (`harness.generator.context`), so that a thousand threads cost what ten do.
* An op that names no process goes to a client, never to the nemesis, unless it is in `nemesis(...)`.
"""

from harness.generator.adapters import f_map, log, on_update, trace, validate
from harness.generator.adapters import filter_ as filter
from harness.generator.adapters import map_ as map
from harness.generator.base import (
    EMPTY,
    LOG,
    PENDING,
    Generator,
    GeneratorError,
    Invocation,
    Pending,
    Source,
    Step,
    as_generator,
    concat,
    drawn,
    synchronize,
    then,
)
from harness.generator.choice import any_, flip_flop, mix, shortest_any
from harness.generator.context import Context, ProcessMap
from harness.generator.flow import concurrency_limit, cycle, limit, once, phases, process_limit, repeat, until, until_ok
from harness.generator.keys import concurrent_keys, key_window, sequential_keys
from harness.generator.routing import clients, each_process, each_thread, nemesis, on_threads, reserve
from harness.generator.timing import cycle_times, delay, rate, script, sleep, stagger, time_limit

__all__ = [
    "EMPTY",
    "LOG",
    "PENDING",
    "Context",
    "Generator",
    "GeneratorError",
    "Invocation",
    "Pending",
    "ProcessMap",
    "Source",
    "Step",
    "any_",
    "as_generator",
    "clients",
    "concat",
    "concurrency_limit",
    "concurrent_keys",
    "cycle",
    "cycle_times",
    "delay",
    "drawn",
    "each_process",
    "each_thread",
    "f_map",
    "filter",
    "flip_flop",
    "key_window",
    "limit",
    "log",
    "map",
    "mix",
    "nemesis",
    "on_threads",
    "on_update",
    "once",
    "phases",
    "process_limit",
    "rate",
    "repeat",
    "reserve",
    "script",
    "sequential_keys",
    "shortest_any",
    "sleep",
    "stagger",
    "synchronize",
    "then",
    "time_limit",
    "trace",
    "until",
    "until_ok",
    "validate",
]
