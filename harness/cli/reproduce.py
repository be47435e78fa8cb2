# SPDX-License-Identifier: Apache-2.0
"""The command `harness reproduce`: how often does a finding show?"""

from __future__ import annotations

import math
import shlex
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import click
from click.core import ParameterSource

from harness import terminal
from harness.boundary import end
from harness.cli.parts import store_option
from harness.findings import record
from harness.findings.rates import ALWAYS, Excluded, Fixed, Sequential, StoppingRule, Within, describe, interval
from harness.plan.plan import PlanError
from harness.plan.table import shell_words
from harness.shipped import shipped_page
from harness.values import FilePath, FiniteRange
from results.reading import exists
from results.verdict import Verdict

if TYPE_CHECKING:
    from harness.findings.reproduce import Series, Subject

_SHOW, _GONE = 0.8, 0.2


@click.command()
@click.argument("subjects", nargs=-1, metavar="[ID|PLAN|RUN]...")
@click.option("--runs", type=click.IntRange(1, 1_000_000), help="A fixed number of runs.  [default: 5]")
@click.option(
    "--show",
    type=FiniteRange(0, 1, min_open=True, max_open=True),
    help=f"Stop when this rate or more is distinguished from --gone or less.  [default with --gone: {_SHOW}]",
)
@click.option(
    "--gone",
    type=FiniteRange(0, 1, min_open=True, max_open=True),
    help=f"Stop when this rate or less is distinguished from --show or more.  [default with --show: {_GONE}]",
)
@click.option(
    "--within",
    type=FiniteRange(0, 0.5, min_open=True),
    help=f"Stop when the rate is known to this, or shown {ALWAYS} of {ALWAYS}; the record's runs count.",
)
@click.option(
    "--mended",
    is_flag=True,
    help="With the finding's mend, or another control: so many runs (or as --runs says) as exclude its rate.",
)
@click.option(
    "--expect",
    type=click.Choice(["gone"]),
    help="Stop when the finding is distinguished from a defect as frequent as the record has it, or more. The exit "
    "code is 0 if it is gone, else 1.",
)
@click.option("--version", help="Version of the servers, in place of the finding's.")
@click.option("--option", "options", multiple=True, metavar="OPTION", help='Option for the runs: "--cluster local".')
@click.option("--anomaly", "anomalies", multiple=True, metavar="NAME", help="What to look for, with a PLAN or a RUN.")
@click.option(
    "--all",
    "everything",
    is_flag=True,
    help="All findings of the record, the least measured ones (--mended: the shortest series) first.",
)
@click.option("--hours", type=FiniteRange(0, 8784, min_open=True), help="With --all: begin no run after this time.")
@click.option(
    "--record",
    "folder",
    type=FilePath(file_okay=False),
    help="Folder of the findings; series are added to it.  [default: the harness's own, and --measured]",
)
@click.option(
    "--measured",
    type=FilePath(file_okay=False),
    default=Path("results/measured"),
    show_default=True,
    help="Without --record: the folder of your own series.",
)
@click.option("--no-record", is_flag=True, help="Do not write the series down.")
@click.option(
    "--issue",
    is_flag=True,
    help="Run nothing: print an issue, ready to file for the project whose servers have the defect.",
)
@click.option("--page", is_flag=True, help="Run nothing: print the page of the finding.")
@store_option
def reproduce(
    subjects: tuple[str, ...],
    runs: int | None,
    show: float | None,
    gone: float | None,
    within: float | None,
    mended: bool,
    expect: str | None,
    version: str | None,
    options: tuple[str, ...],
    anomalies: tuple[str, ...],
    everything: bool,
    hours: float | None,
    folder: Path | None,
    measured: Path,
    no_record: bool,
    issue: bool,
    page: bool,
    store: Path,
) -> None:
    """Run findings of the record, plans or stored runs again and again; report how often they show.

    k of n comes with its exact interval (Clopper and Pearson, 95 %). A run that tried nothing (a fault without
    effect, a strike without its event, a harness that failed) is no part of n. Without arguments: the list of
    findings. The exit code is 0 where every subject showed at least once, 1 where one never did, 2 where one was
    never tried. With --expect gone: 0 where the sequential test says of every subject that it is gone, else 1.

    \b
    harness reproduce 5 --runs 10
    harness reproduce 5 --version 5.3.3 --gone 0.2
    harness reproduce 5 --expect gone --option "--server-jars lib"
    harness reproduce results/runs/latest --runs 3
    harness reproduce --all --hours 8
    harness reproduce --all --mended
    harness reproduce 5 --issue
    """
    from harness.cli.run import check_words, require_free
    from harness.findings import reproduce as series

    place = folder or measured

    def read() -> list[record.Finding]:
        if folder is not None:
            return record.read_findings(folder)
        return record.with_series(record.read_findings(), measured)

    findings = read()
    if issue or page:
        for finding in _texts_of(findings, subjects):
            terminal.say_all(_issue(finding) if issue else _page(finding))
        return
    if not subjects and not everything:
        _list(findings)
        return
    if expect is not None and (everything or runs or within):
        raise PlanError("--expect gone has its own end, and needs subjects: leave out --all, --runs and --within")
    rule = Fixed(1) if expect else _rule(runs, show, gone, within)
    if hours is not None and not everything:
        raise PlanError("--hours is for --all; --runs says how many runs of a single one")
    extra = [
        *(["--version", version] if version is not None else []),
        *(word for text in options for word in shell_words(text, "--option")),
    ]
    fixed = runs or show or gone or within or expect
    if everything:
        runnable = [f for f in findings if f.command and not (mended and f.with_control() is None)]
        chosen = [series.of_finding(f, [] if mended else findings) for f in runnable]
        chosen.sort(key=lambda subject: _length(subject, _added(subject, extra, mended), mended and not fixed))
    else:
        chosen = [series.named(text, findings, anomalies, alone=mended) for text in subjects]
    require_free(extra)
    for subject in chosen:
        check_words([*subject.args, *_added(subject, extra, mended)])
    tests = [_test_of(subject, _added(subject, extra, mended), show, gone) for subject in chosen] if expect else []
    until = None if hours is None else time.monotonic() + hours * 3600
    codes, ends = [], []
    for number, subject in enumerate(_as_of_now(one, read) for one in chosen):
        added = _added(subject, extra, mended)
        shown, ran = _earlier(subject, added)
        own = replace(rule, k=shown, n=ran) if isinstance(rule, Within) else tests[number] if expect else rule
        if mended and not fixed and subject.finding is not None:
            own = _excluded(subject.finding)
        if everything and (why := own.decide(0, 0)) is not None:
            terminal.say(f"{subject.title}: {why}")
            continue
        if until is not None and time.monotonic() >= until:
            terminal.say(f"{subject.title}: not reached")
            continue
        terminal.say(f"{subject.title}: {own.describe()} of harness run {shlex.join([*subject.args, *added])}")
        found = series.reproduce(subject, own, added, store, terminal.say, until)
        why = own.decide(found.shown, found.runs)
        terminal.say(f"{subject.title}: {found.describe()}{f'; {why}' if why else ''}")
        for other, same in zip(subject.others, found.others, strict=True):
            terminal.say(f"finding {other.id}, in the same runs: {same.describe()}")
        if subject.finding is not None and not no_record:
            for finding, one in zip((subject.finding, *subject.others), (found, *found.others), strict=True):
                if one.runs:
                    path = record.add(place, finding, one.measured(record.change(added)))
                    more = (
                        "; python -m harness.findings.pages docs and rocketmq_harness.advice.pages docs make the pages"
                        if folder
                        else ""
                    )
                    terminal.say(f"  added to {path}{more}")
        if found.stopped is not None:
            raise found.stopped
        codes.append(Verdict.UNKNOWN if not found.runs else Verdict.VALID if found.shown else Verdict.INVALID)
        if expect:
            ends.append(_ended(subject, found, tests[number]))
    if expect:
        terminal.say("; ".join(text for _, text in ends))
        end(0 if all(gone_now for gone_now, _ in ends) else Verdict.INVALID.exit_code)
    end(max((code.exit_code for code in codes), default=0))


def _rule(runs: int | None, show: float | None, gone: float | None, within: float | None) -> StoppingRule:
    if (runs is not None) + (within is not None) + (show is not None or gone is not None) > 1:
        raise PlanError("--runs, --within, and --show or --gone exclude each other: a series has one rule for its end")
    if within is not None:
        return Within(within)
    if show is None and gone is None:
        return Fixed(runs or 5)
    try:
        return Sequential(show or _SHOW, gone or _GONE)
    except ValueError as problem:
        raise PlanError(f"--show and --gone: {problem}") from None


def _test_of(subject: Subject, added: Sequence[str], show: float | None, gone: float | None) -> Sequential:
    """The sequential test of `--expect gone`: against a defect that shows as often as the record has it, at the lower
    end of the interval of its rate. Raises PlanError if no rate is known, or no series of this length could decide.
    """
    why = f"--show is {show:g}" if show is not None else ""
    if show is None:
        shown, ran = _rate_before(subject, added)
        if not shown:
            raise PlanError(f"--expect gone: nobody has measured how often {subject.title} shows; --show P says it")
        show = max(0.01, math.floor(100 * min(_SHOW, interval(shown, ran)[0])) / 100)
        why = f"{subject.title} showed in {describe(shown, ran)}"
    try:
        test = Sequential(show, round(show * _GONE / _SHOW, 4) if gone is None else gone)
    except ValueError as problem:
        raise PlanError(f"--show and --gone: {problem}") from None
    if test.decision(0, test.most) is None:
        raise PlanError(
            f"--expect gone: {why}, and {test.most} runs without it would not exclude {show:g}; --show P would"
        )
    return test


def _rate_before(subject: Subject, added: Sequence[str]) -> tuple[int, int]:
    """(shown, runs) of the defect that is to be gone: of the version that `added` names and nothing else, if it showed
    there; otherwise of the finding's own command.
    """
    if subject.finding is None:
        return 0, 0
    shown, ran = _earlier(subject, added) if len(added) == 2 and added[0] == "--version" else (0, 0)
    return (shown, ran) if shown else subject.finding.rates().get("", (0, 0))


def _ended(subject: Subject, found: Series, test: Sequential) -> tuple[bool, str]:
    """True if the subject is gone; and the conclusion, as a part of the last line."""
    seen = f"{found.describe()}, {test.gone:g} or less against {test.show:g} or more"
    match test.decision(found.shown, found.runs):
        case "gone":
            return True, f"gone: {subject.title}, {seen}"
        case "show":
            return False, f"not gone: {subject.title}, {seen}"
    return False, f"not decided: {subject.title}, {seen}"


def _added(subject: Subject, extra: Sequence[str], mended: bool) -> list[str]:
    """Options that the series adds to the command. Raises PlanError if the finding has neither mend nor control."""
    if not mended:
        return list(extra)
    option = subject.finding.with_control() if subject.finding is not None else None
    if option is None:
        raise PlanError(f"--mended: {subject.title} has neither a mend nor a control  (harness list mends)")
    return [*extra, *option]


def _excluded(finding: record.Finding) -> Excluded:
    """The stopping rule of a control: until the rate without it is excluded."""
    return Excluded(*finding.rates().get("", (0, 0)), *finding.mended())


def _length(subject: Subject, added: Sequence[str], control: bool) -> int:
    """The sort key for the subjects of `--all`: the shortest controls first, or the least measured subjects."""
    return _excluded(subject.finding).runs if control and subject.finding else _earlier(subject, added)[1]


def _as_of_now(subject: Subject, read: Callable[[], list[record.Finding]]) -> Subject:
    """The subject with the present record, which grows by the runs of findings with the same command."""
    if subject.finding is None:
        return subject
    return replace(subject, finding=record.find(read(), str(subject.finding.id)))


def _earlier(subject: Subject, added: Sequence[str]) -> tuple[int, int]:
    """(shown, runs) of the same series in the record."""
    rates = subject.finding.rates() if subject.finding is not None else {}
    return rates.get(record.change(added), (0, 0))


def _texts_of(findings: Sequence[record.Finding], subjects: Sequence[str]) -> list[record.Finding]:
    """The findings whose issues or pages are printed. Raises PlanError for other subjects, and for options of a
    series.
    """
    context = click.get_current_context()
    given = {option for option in context.params if context.get_parameter_source(option) == ParameterSource.COMMANDLINE}
    printed = [f"--{option}" for option in ("issue", "page") if option in given]
    if len(printed) > 1:
        raise PlanError("--issue and --page exclude each other; use one of them")
    for parameter in context.command.params:
        if parameter.name in given - {"subjects", "issue", "page", "folder", "measured"}:
            raise PlanError(f"{printed[0]} runs nothing, so {parameter.opts[0]} has no effect; leave it out")
    chosen = []
    for text in subjects or [""]:
        finding = record.find(findings, text)
        if finding is None:
            raise PlanError(f"{printed[0]} needs the id of a finding (1 to {findings[-1].id}), not {text!r}")
        chosen.append(finding)
    return chosen


def _issue(finding: record.Finding) -> list[str]:
    """The lines of an issue. Raises PlanError if the record does not say what is promised, and what happens."""
    from harness.findings.issue_text import issue_text, project

    if finding.issue is None:
        raise PlanError(f"--issue: the file of finding {finding.id} has no [issue]")
    terminal.say(f"an issue for {project(finding)}:", err=True)
    return issue_text(finding, finding.issue).splitlines()


def _page(finding: record.Finding) -> list[str]:
    """The lines of a finding's page. Raises PlanError for a finding of another record, which has none here."""
    path = shipped_page(finding.file)
    if not exists(path):
        raise PlanError(f"--page: finding {finding.id} of this record has no page in the package")
    return path.read_text(encoding="utf-8").splitlines()


def _list(findings: Sequence[record.Finding]) -> None:
    """Prints each finding with the rate of its own command, the one that a series would run."""
    for finding in findings:
        rate = finding.rates().get("")
        terminal.say(
            f"{finding.id:>3}  {finding.title}  [{finding.system}]  {describe(*rate) if rate else 'no rate yet'}"
        )
