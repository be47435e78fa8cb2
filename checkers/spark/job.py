# SPDX-License-Identifier: Apache-2.0
"""The job: sends portions of units to the workers in waves, writes their results, and handles failed workers.

Two waves are active at a time, so that free cores continue with the next wave. The results of a wave are written before
it counts. If a wave fails because a worker died, its portions are sent again one by one. A portion that fails alone is
halved until one history is left. That history is `unknown`, with the reason, and the job continues.
"""

from __future__ import annotations

import json
import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Protocol

import pyarrow as pa

from checkers.spark.files import Files, as_path, join
from checkers.spark.units import Unit, waves
from results.verdict_table import RECEIPTS, VERDICTS, parquet_bytes

if TYPE_CHECKING:
    from pyspark import SparkContext

Portion = tuple[Unit, ...]

_AT_ONCE = 2
_SHOWN = 5
_EXAMPLES: Final = "told"  # plain_english: the key in stored receipts

FILE_BYTES: Final = 1 << 20
"""The size of the rows of one verdict file, or a little more: compressed, as they come from the workers. Unpacked they
are some 25 times as large, and the driver's memory has to hold that.
"""


@dataclass(frozen=True)
class Receipt:
    """The result of a unit, for the summary.

    unit      its fingerprint. runs: the number of each verdict. examples: (run, verdict, reason) of some invalid ones.
    part      the part of the run `name`; None: all of it.
    ended     the history could not be read or is malformed: it is judged no further.
    empty     no client did anything in any of its histories.
    """

    unit: str
    name: str
    source: str
    runs: Mapping[str, int]
    examples: Sequence[tuple[str, str, str]] = ()
    part: str | None = None
    ended: bool = False
    empty: bool = False

    def line(self) -> str:
        return json.dumps(
            {
                "unit": self.unit,
                "name": self.name,
                "source": self.source,
                "runs": dict(self.runs),
                _EXAMPLES: [list(one) for one in self.examples[:_SHOWN]],
                **({"part": self.part} if self.part else {}),
                **({"ended": True} if self.ended else {}),
                **({"empty": True} if self.empty else {}),
            }
        )

    @staticmethod
    def read(line: str) -> Receipt:
        data = json.loads(line)
        examples = [(run, verdict, reason) for run, verdict, reason in data[_EXAMPLES]]
        flags = data.get("ended", False), data.get("empty", False)
        return Receipt(data["unit"], data["name"], data["source"], data["runs"], examples, data.get("part"), *flags)


@dataclass(frozen=True)
class Done:
    """The result of a worker: rows of the verdict table, as an Arrow stream, and a receipt for each unit."""

    rows: bytes
    receipts: Sequence[Receipt]

    @staticmethod
    def of(table: pa.Table, receipts: Sequence[Receipt]) -> Done:
        sink = pa.BufferOutputStream()
        options = pa.ipc.IpcWriteOptions(compression="zstd", unify_dictionaries=True)
        with pa.ipc.new_stream(sink, table.schema, options=options) as stream:
            stream.write_table(table.unify_dictionaries().combine_chunks())
        return Done(sink.getvalue().to_pybytes(), receipts)

    @property
    def table(self) -> pa.Table:
        return pa.ipc.open_stream(self.rows).read_all()


class Work(Protocol):
    """The check of a portion. It is sent to the workers, and must not raise for any content of a history."""

    def __call__(self, portion: Portion, places: Mapping[str, Path]) -> Done:
        """`places`: source of each unit -> its path on this machine."""

    def lost(self, unit: Unit, reason: str) -> Done:
        """The result for a unit whose check failed."""

    def runs_in(self, unit: Unit, place: Path) -> int:
        """The number of histories in parts of an op table."""


class Stopped(Exception):
    """The session ended while the job continued."""


class Job:
    """One call of `harness batch`. Every file that it writes has `name` in its name, which must be unique."""

    def __init__(
        self, context: SparkContext, inputs: Files, output: str, outputs: Files, work: Work, name: str
    ) -> None:
        self.context, self.inputs, self.output, self.outputs = context, inputs, output, outputs
        self.work, self.name = work, name
        self._written = 0

    def run(self, portions: Sequence[Portion]) -> Iterator[Sequence[Receipt]]:
        """Executes all portions; yields receipts after each write. Raises StoreError (cannot write), Stopped."""
        cores = self.context.defaultParallelism
        rest = iter(waves(portions, cores))
        with ThreadPoolExecutor(_AT_ONCE, "wave") as pool:
            going: dict[Future[list[Done]], list[Portion]] = {}
            try:
                while True:
                    while len(going) < _AT_ONCE and (wave := next(rest, None)) is not None:
                        going[pool.submit(self._wave, wave)] = wave
                    if not going:
                        return
                    for future in wait(going, return_when=FIRST_COMPLETED).done:
                        wave = going.pop(future)
                        yield self.write(self._found(future, wave))
            except BaseException:
                self.context.cancelAllJobs()
                raise

    def _found(self, future: Future[list[Done]], wave: list[Portion]) -> list[Done]:
        problem = future.exception()
        if problem is None:
            return future.result()
        self._insist_on_session(problem)
        return [done for portion in wave for done in self._alone(portion)]

    def _alone(self, portion: Portion) -> Iterator[Done]:
        """A portion of a wave that failed: done by itself, or in smaller and smaller pieces."""
        try:
            yield from self._wave([portion])
            return
        except Exception as problem:
            self._insist_on_session(problem)
            reason = _reason(problem)
        if len(portion) > 1:
            middle = len(portion) // 2
            yield from self._alone(portion[:middle])
            yield from self._alone(portion[middle:])
            return
        pieces = portion[0].halves() or self._shares(portion[0])
        if not pieces:
            yield self.work.lost(portion[0], reason)
        for piece in pieces:
            yield from self._alone((piece,))

    def _shares(self, unit: Unit) -> list[Unit]:
        """Histories of one part of an op table, each by itself."""
        if unit.groups is None or unit.slice is not None:
            return []
        work = self.work
        try:
            count = self._on_workers([(unit,)], lambda portion, places: work.runs_in(unit, places[unit.source]))[0]
        except Exception as problem:
            self._insist_on_session(problem)
            return []
        return unit.shares(count) if count > 1 else []

    def _wave(self, wave: Sequence[Portion]) -> list[Done]:
        return self._on_workers(wave, self.work)

    def _on_workers(self, wave: Sequence[Portion], do: Callable[[Portion, Mapping[str, Path]], Any]) -> list[Any]:
        """Executes `do` for each portion, one task a portion. Raises Spark's exceptions."""
        if self.inputs.shared:
            tasks = self.context.parallelize([(portion,) for portion in wave], len(wave))
            return tasks.map(lambda task: do(task[0], _in_place(task[0]))).collect()
        return self._brought(wave, do)

    def _brought(self, wave: Sequence[Portion], do: Callable[[Portion, Mapping[str, Path]], Any]) -> list[Any]:
        """The same, where Spark has to bring the files to the workers."""
        owner: dict[str, list[tuple[int, str, str]]] = {}
        for number, portion in enumerate(wave):
            for unit in portion:
                for file in unit.files or ("",):
                    path = _bare(join(unit.source, file))
                    owner.setdefault(path, []).append((number, unit.source, file))
        wanted = {
            join(unit.source, file) if file else unit.source
            for portion in wave
            for unit in portion
            for file in unit.files or ("",)
        }
        read = self.context.binaryFiles(",".join(map(_pattern, wanted)), len(wave))
        plan = list(wave)

        def owned(found: tuple[str, bytes]) -> list[tuple[int, tuple[str, str, bytes]]]:
            uri, data = found
            return [(number, (source, file, data)) for number, source, file in owner.get(_bare(uri), ())]

        def task(number: int, pieces: Iterable[tuple[int, tuple[str, str, bytes]]]) -> Iterator[Any]:
            with tempfile.TemporaryDirectory(prefix="batch-") as folder:
                places = {unit.source: Path(folder, str(i)) for i, unit in enumerate(plan[number])}
                for _, (source, file, data) in pieces:
                    target = places[source] / file if file else places[source]
                    target.parent.mkdir(parents=True, exist_ok=True)
                    target.write_bytes(data)
                yield do(plan[number], places)

        pieces = read.flatMap(owned).partitionBy(len(wave), lambda number: number)
        return pieces.mapPartitionsWithIndex(task).collect()

    def write(self, found: Sequence[Done]) -> list[Receipt]:
        """Writes the results in files of limited size, so that the unpacked rows do not grow with the wave."""
        receipts: list[Receipt] = []
        waiting: list[Done] = []
        for number, done in enumerate(found, 1):
            waiting.append(done)
            if number == len(found) or sum(len(one.rows) for one in waiting) >= FILE_BYTES:
                receipts += self._file(waiting)
                waiting = []
        return receipts

    def _file(self, found: Sequence[Done]) -> list[Receipt]:
        """Writes the rows first: a receipt promises that its rows are there."""
        receipts = [receipt for done in found for receipt in done.receipts]
        table = pa.concat_tables([done.table for done in found])
        stem = f"{self.name}-{self._written:05}"
        self._written += 1
        self.outputs.write(join(self.output, VERDICTS, f"{stem}.parquet"), parquet_bytes(table))
        text = "".join(receipt.line() + "\n" for receipt in receipts)
        self.outputs.write(join(self.output, RECEIPTS, f"{stem}.jsonl"), text.encode())
        return receipts

    def _insist_on_session(self, problem: BaseException) -> None:
        """Raises Stopped if the session is dead: then every call fails, and proves nothing about a history."""
        from py4j.protocol import Py4JNetworkError

        ended = isinstance(problem, Py4JNetworkError)
        try:
            ended = ended or self.context._jsc.sc().isStopped()
        except Exception:
            ended = True
        if ended:
            raise Stopped(_reason(problem)) from None


def _in_place(portion: Portion) -> dict[str, Path]:
    return {unit.source: Path(unit.sealed or as_path(unit.source)) for unit in portion}


def _bare(uri: str) -> str:
    """The path in a URI as Hadoop writes it, which is not percent-encoded."""
    scheme, colon, rest = uri.partition(":")
    if not colon or "/" in scheme:
        return uri
    return "/" + rest[2:].partition("/")[2] if rest.startswith("//") else rest


def _pattern(uri: str) -> str:
    """A glob that matches this URI. A comma separates patterns, whatever is in front of it: `?` stands for it."""
    return "".join("?" if c == "," else f"\\{c}" if c in "*?[]{}\\" else c for c in uri)


def _reason(problem: BaseException) -> str:
    """The reason why a task failed, in one line."""
    text = str(problem)
    if "Python worker exited unexpectedly" in text or "ExecutorLostFailure" in text or "EOFException" in text:
        return "the process that checked it was killed (was the machine out of memory?)"
    if "MemoryError" in text:
        return "there is not enough memory for it"
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    raised = [line for line in lines if line.split(":")[0].split(".")[-1].endswith(("Error", "Exception"))]
    last = (raised or lines or [type(problem).__name__])[-1]
    return f"the check itself failed ({last[:300]}): a bug, please report"


def receipts_in(output: str, files: Files) -> Iterator[Receipt]:
    """Yields all receipts of an output. It skips a line that is cut (an incomplete copy): its unit is checked again."""
    for name in files.children(join(output, RECEIPTS)):
        if not name.endswith(".jsonl") or name.startswith((".", "_")):
            continue
        for line in files.read(join(output, RECEIPTS, name)).decode("utf-8", "replace").splitlines():
            try:
                yield Receipt.read(line)
            except (ValueError, KeyError, TypeError):
                continue
