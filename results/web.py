# SPDX-License-Identifier: Apache-2.0
"""The runs of stores in a browser: a list to search and sort, two runs side by side, folders, files, reports. It reads
and never writes.

Log lines of nodes and keys of foreign histories are not trusted. Only a run's own `report.html`, and the pages of
nights and comparisons at the top of a store, are HTML, sandboxed and without scripts. All other files are plain text or
a download. Paths, including links, are confined to the stores. A page of another site cannot reach the view under its
own host name (DNS rebinding): the requested host must be that of this machine.
"""

from __future__ import annotations

import logging
import os
import secrets
import socket
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import astuple, dataclass, field
from functools import lru_cache
from pathlib import Path
from typing import Any, Final
from urllib.parse import quote, urlencode

from flask import Flask, Response, abort, request
from werkzeug.exceptions import HTTPException
from werkzeug.serving import ThreadedWSGIServer, WSGIRequestHandler

from results.errors import HistoryError, in_bytes
from results.reading import opened, read_toml
from results.report.layout import render_template
from results.report.trends import trends_page
from results.report.words import text
from results.retention import size_of
from results.side_by_side import side_by_side
from results.store import RunDir, RunSummary, Store
from results.trends import read_trends
from results.verdict_table import VERDICTS

log = logging.getLogger(__name__)

PAGE: Final = 100
"""The number of runs on a page."""
INLINE_LIMIT: Final = 8 << 20
"""Text files above so many bytes are downloads: browsers show them slowly."""
ENTRIES: Final = 2000
"""The largest number of listed entries of a folder."""

CONNECTIONS: Final = 32
"""The largest number of open connections; a browser opens six. One more is closed at once."""
IDLE_S: Final = 30.0
"""A connection that sends nothing for so long is closed."""

_HOSTS: Final = frozenset({"127.0.0.1", "localhost", "[::1]"})
_FILES: Final = "/files/"
_STRICT: Final = "default-src 'none'; base-uri 'none'; frame-ancestors 'none'; "
_MENDS: Final = 40
"""The largest number of mends in a row."""
_PAGES: Final = 12
"""The largest number of pages of nights and comparisons that the list names."""
_SORTS: Final = ("time", "name", "verdict")


@dataclass(frozen=True)
class Facts:
    """The facts of a run from its plan; empty texts if the plan has none.

    version, build  of the servers: `5.5.0`, and the folder of the user's own jars. mends: their ids.
    """

    workload: str = ""
    nemesis: str = ""
    topology: str = ""
    version: str = ""
    build: str = ""
    mends: str = ""
    seed: str = ""


@dataclass(frozen=True)
class Row:
    """A run in the list. `label`: `<workload>-<nemesis>`; `folder`: its path in the store, with slashes; `known`: its
    known findings and new anomalies.
    """

    time: str
    label: str
    verdict: str
    reason: str
    folder: str
    known: str = ""
    facts: Facts = field(default_factory=Facts)

    def has(self, words: Sequence[str]) -> bool:
        """True if all words (in small letters) occur in the run's texts in the list, its store included."""
        texts = (self.time, self.label, self.verdict, self.known, self.reason, self.folder, *astuple(self.facts))
        found = " ".join(texts).casefold()
        return all(word in found for word in words)


@dataclass(frozen=True)
class Shown:
    """A row with the data that only the rows of one page need. store: its name, unless it is the main one. size: of all
    files.
    """

    row: Row
    facts: Facts
    store: str
    folder: str
    report: str | None
    size: str


@dataclass(frozen=True)
class Entry:
    """A name in a folder; `href` is None if it is not served (a link that leaves the store, a socket)."""

    name: str
    href: str | None
    size: str


class _Making:
    """Makes the verdict table once in the background, at the first request if no table exists."""

    def __init__(self, make: Callable[[], None] | None) -> None:
        self._make, self._lock = make, threading.Lock()
        self._thread: threading.Thread | None = None
        self._began = 0.0
        self._why = ""

    def page(self) -> Response:
        """The page in place of the trends."""
        with self._lock:
            if self._make is None:
                return _making(404, why="There is no verdict table beside the store; `harness batch` makes one.")
            if self._why:
                why, self._why = self._why, ""
                return _making(404, why=f"{why} (To try again, load this page again.)")
            if self._thread is None or not self._thread.is_alive():
                self._began = time.monotonic()
                self._thread = threading.Thread(target=self._run, args=(self._make,), daemon=True)
                self._thread.start()
            return _making(202, seconds=round(time.monotonic() - self._began))

    def _run(self, make: Callable[[], None]) -> None:
        try:
            make()
        except Exception as problem:
            log.error("the verdict table: %s: %s", type(problem).__name__, problem)
            with self._lock:
                self._why = f"The verdict table cannot be made: {problem}."


def _making(code: int, *, seconds: int | None = None, why: str = "") -> Response:
    response = _html("making.html.j2", seconds=seconds, why=why)
    response.status_code = code
    return response


@dataclass(frozen=True)
class Stores:
    """The stores of a view: a main one, and others by name. All roots are resolved.

    A path in the view is relative to the main store, or begins with `@NAME/`. No run's folder begins with `@`.
    """

    main: Path
    others: Mapping[str, Path] = field(default_factory=dict)

    @property
    def roots(self) -> list[Path]:
        return [self.main, *self.others.values()]

    def find(self, relative: str) -> Path | None:
        """The file or folder at a path of the view; see `confined`."""
        first, _, rest = relative.lstrip("/").partition("/")
        other = self.others.get(first[1:]) if first.startswith("@") else None
        return confined(self.main, relative) if other is None else confined(other, rest)

    def path_of(self, path: Path) -> str:
        """The path of the view for a file or folder in one of the stores."""
        for name, root in self.others.items():
            if path.is_relative_to(root):
                return Path(f"@{name}", path.relative_to(root)).as_posix()
        return path.relative_to(self.main).as_posix()

    def pages(self) -> list[tuple[str, str]]:
        """(name, address) of the pages of nights and comparisons, the newest first."""
        found = [page for root in self.roots for page in root.glob("*.html") if _is_page(self, page.resolve())]
        found.sort(key=lambda page: page.stat().st_mtime, reverse=True)
        return [(text(self.path_of(page).removeprefix("@"), 80), _href(self.path_of(page))) for page in found[:_PAGES]]


def _is_page(stores: Stores, path: Path) -> bool:
    """True for a page of a night or a comparison: an HTML file at the top of a store."""
    return path.suffix == ".html" and path.parent in stores.roots and path.is_file()


def create_app(
    store_root: Path,
    hosts: frozenset[str] = _HOSTS,
    make_table: Callable[[], None] | None = None,
    others: Mapping[str, Path] | None = None,
) -> Flask:
    """The web view of stores.

    hosts       the names of this machine that a request may use.
    make_table  makes the verdict table beside the store (`results/verdicts`); None: it cannot be made.
    others      further stores, by the names that they have in the view.
    """
    root = store_root.resolve()
    stores = Stores(root, {name: path.resolve() for name, path in (others or {}).items()})
    making = _Making(make_table)
    app = Flask(__name__, static_folder=None)

    @app.before_request
    def only_this_machine() -> Response | None:
        host = request.host.rsplit(":", 1)[0] if not request.host.endswith("]") else request.host
        if host in hosts:
            return None
        return Response("This view is available only under the address of this machine.\n", 403, mimetype="text/plain")

    @app.after_request
    def headers(response: Response) -> Response:
        response.headers["X-Content-Type-Options"] = "nosniff"
        response.headers["Referrer-Policy"] = "no-referrer"
        response.headers["Cache-Control"] = "no-cache"
        response.headers.setdefault("Content-Security-Policy", _STRICT + "sandbox")
        return response

    @app.get("/")
    def index() -> Response:
        return _html("index.html.j2", **_index(stores, request.args))

    @app.get("/two")
    def two() -> Response:
        return _two(stores, request.args.getlist("run"))

    @app.get("/trends")
    def trends() -> Response:
        return _trends(root, making)

    @app.get(_FILES, defaults={"relative": ""})
    @app.get(_FILES + "<path:relative>")
    def files(relative: str) -> Response:
        found = stores.find(relative)
        if found is None:
            abort(404)
        return _folder(stores, found) if found.is_dir() else _file(stores, found)

    @app.errorhandler(HTTPException)
    def refused(problem: HTTPException) -> Response:
        messages = {404: "There is no such run or file in the store.", 405: "This view is read-only."}
        code = problem.code or 500
        return Response(f"{messages.get(code, problem.name)}\n", code, mimetype="text/plain")

    @app.errorhandler(Exception)
    def failed(problem: Exception) -> Response:
        log.error("%s: %s: %s", request.path, type(problem).__name__, problem, exc_info=problem)
        message = "This page cannot be shown because of an unexpected error. See the terminal of `harness serve`.\n"
        return Response(message, 500, mimetype="text/plain")

    return app


def serve(
    store_root: Path,
    host: str = "127.0.0.1",
    port: int = 8080,
    make_table: Callable[[], None] | None = None,
    others: Mapping[str, Path] | None = None,
) -> None:
    """Serves until interrupted; the address is printed. Raises OSError if the port is not available."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    with socket.create_server((host, port), family=family) as listening:
        named = f"[{host}]" if ":" in host else host
        app = create_app(store_root, _HOSTS | {named}, make_table, others)
        server = Server(host, port, app, handler=_Handler, fd=listening.fileno())
        logging.getLogger("werkzeug").setLevel(logging.WARNING)
        print(f"http://{named}:{listening.getsockname()[1]}/  (Ctrl-C ends it)", flush=True)
        try:
            server.serve_forever()
        except KeyboardInterrupt:
            pass
        finally:
            server.server_close()


class _Handler(WSGIRequestHandler):
    timeout = IDLE_S


class Server(ThreadedWSGIServer):
    """A server with one thread for each connection, and `CONNECTIONS` of them at most."""

    daemon_threads = True

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self._places = threading.BoundedSemaphore(CONNECTIONS)

    def get_request(self) -> tuple[Any, Any]:
        """Raises OSError, after 0.1 s, if no file descriptor is left: the caller tries again at once."""
        try:
            return super().get_request()
        except OSError:
            time.sleep(0.1)
            raise

    def process_request(self, request: Any, client_address: Any) -> None:
        if self._places.acquire(blocking=False):
            try:
                super().process_request(request, client_address)
            except BaseException:  # no thread could be started
                self._places.release()
                raise
        else:
            self.shutdown_request(request)

    def process_request_thread(self, request: Any, client_address: Any) -> None:
        try:
            super().process_request_thread(request, client_address)
        finally:
            self._places.release()


def confined(root: Path, relative: str) -> Path | None:
    """The file or folder at a path in the store, all links resolved; None if it does not exist or lies outside.

    `root` must be resolved.
    """
    if "\0" in relative or ".." in relative.split("/"):
        return None
    try:
        found = (root / relative.lstrip("/")).resolve(strict=True)
    except (OSError, RuntimeError):
        return None
    return found if found.is_relative_to(root) else None


def _rows(stores: Stores) -> list[Row]:
    """The runs of all stores, the newest first."""
    found = [_row(stores, run) for root in stores.roots for run in Store(root).runs()]
    return sorted(found, key=lambda row: row.time, reverse=True) if stores.others else found


def _row(stores: Stores, run: RunSummary) -> Row:
    verdict = run.verdict.value if run.verdict else "unreadable" if run.broken else "unfinished"
    plan = confined(run.path, "plan.toml")
    facts = _facts(plan, run.name) if plan is not None and plan.is_file() else Facts(text(run.name, 120))
    return Row(
        f"{run.time:%Y-%m-%d %H:%M:%S}",
        text(run.name, 120),
        verdict,
        text(run.reason),
        stores.path_of(run.path),
        _known(run),
        facts,
    )


def _known(run: RunSummary) -> str:
    """`known 5, 8; new lost`; empty if nothing needs an explanation, or the run was not compared with the findings."""
    known = [f"known {', '.join(map(str, run.known))}"] if run.known else []
    new = [f"new {', '.join(run.new)}"] if run.new else []
    return text("; ".join([*known, *new]), 200)


def _index(stores: Stores, requested: Mapping[str, str]) -> dict[str, Any]:
    """The content of the list: the runs with all the words of `q`, sorted by `sort`, page `page` of them."""
    query = requested.get("q", "")[:200]
    sort = requested.get("sort", "time") if requested.get("sort") in _SORTS else "time"
    up = requested.get("order", "asc" if sort != "time" else "desc") == "asc"
    rows = _rows(stores)
    found = [row for row in rows if row.has(query.casefold().split())]
    if sort == "time":
        found = found[::-1] if up else found
    else:
        # Sorting is stable: among equals the newest stays first.
        found.sort(key=lambda row: row.label if sort == "name" else row.verdict, reverse=not up)
    pages = max(1, -(-len(found) // PAGE))
    number = requested.get("page", "1")
    page = min(max(int(number) if number.isdecimal() and len(number) < 9 else 1, 1), pages)

    def link(**changes: object) -> str:
        now = {"q": query, "sort": sort, "order": "asc" if up else "desc", "page": 1}
        return "/?" + urlencode({k: v for k, v in {**now, **changes}.items() if v != ""}, errors="replace")

    return {
        "runs": [_shown(stores, row) for row in found[(page - 1) * PAGE : page * PAGE]],
        "total": len(rows),
        "night_pages": stores.pages(),
        "found": len(found),
        "query": query,
        "sort": sort,
        "up": up,
        "page": page,
        "pages": pages,
        "earlier": link(page=page - 1) if page > 1 else None,
        "later": link(page=page + 1) if page < pages else None,
        "sorted_by": {s: link(sort=s, order="desc" if s == sort and up else "asc") for s in _SORTS},
    }


def _shown(stores: Stores, row: Row) -> Shown:
    folder = stores.find(row.folder)
    report = stores.find(f"{row.folder}/report.html")
    shown = _href(f"{row.folder}/report.html") if report is not None and report.is_file() else None
    store = row.folder.partition("/")[0][1:] if row.folder.startswith("@") else ""
    size = in_bytes(size_of(folder)) if folder is not None else ""
    return Shown(row, row.facts, store, _href(row.folder + "/"), shown, size)


def _facts(plan: Path, name: str) -> Facts:
    """The facts of a plan. If it is unreadable, the folder's name replaces the workload."""
    try:
        state = plan.stat()
        return _facts_of(plan, state.st_mtime_ns, state.st_size)
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return Facts(text(name, 120))


@lru_cache(maxsize=20_000)
def _facts_of(plan: Path, changed_ns: int, size: int) -> Facts:
    """Facts of a plan, read once for each state of the file."""
    tables = read_toml(plan, follow=False)
    server = tables.get("server", {})
    return Facts(
        workload=text(tables["workload"], 60),
        nemesis=", ".join(text(n["fault"], 60) for n in tables.get("nemesis", [])) or "none",
        topology=" ".join(text(server[name], 60) for name in ("topology", "profile") if server.get(name)),
        version=text(server.get("version", ""), 30),
        build=text(server.get("jars", ""), 60),
        mends=", ".join(text(mend, 10) for mend in server.get("mends", ())[:_MENDS]),
        seed=text(str(tables.get("seed", "")), 20),
    )


def _two(stores: Stores, named: Sequence[str]) -> Response:
    """Two runs side by side; a line if the request does not name two."""
    folders = [found for name in named[:3] if (found := stores.find(name)) is not None and found.is_dir()]
    if len(named) != 2 or len(folders) != 2:
        return Response("Choose two runs of the list.\n", 400, mimetype="text/plain")
    try:
        sections = side_by_side(*(RunDir(folder) for folder in folders))
    except HistoryError as problem:
        return Response(f"{text(str(problem), 300)}\n", 404, mimetype="text/plain")
    heads = []
    for folder in folders:
        path = stores.path_of(folder)
        report = stores.find(f"{path}/report.html")
        heads.append((text(path, 160), _href(f"{path}/report.html" if report is not None else f"{path}/")))
    return _html("two.html.j2", heads=heads, sections=sections)


def table_of(store_root: Path) -> Path:
    """The folder of a store's verdict table: beside it."""
    return store_root.resolve().parent / "verdicts"


def _trends(root: Path, making: _Making) -> Response:
    """The page of trends, from the table of `harness batch` beside the store (its default place)."""
    try:
        found = read_trends(table_of(root))
    except HistoryError as problem:
        if (table_of(root) / VERDICTS).is_dir() and any((table_of(root) / VERDICTS).glob("*.parquet")):
            return _making(404, why=f"The verdict table beside the store cannot be read: {problem}")
        return making.page()
    return _page(trends_page(found))


def _folder(stores: Stores, folder: Path) -> Response:
    here = Path(stores.path_of(folder))
    if not request.path.endswith("/"):
        return Response("", 301, {"Location": _href(here.as_posix() + "/")})
    crumbs = [("runs", "/"), ("store", _FILES)]
    crumbs += [(text(p.name, 80), _href(p.as_posix() + "/")) for p in [*reversed(here.parents), here] if p.name]
    names = sorted(os.listdir(folder))
    entries = [_entry(stores, folder / name) for name in names[:ENTRIES]]
    entries.sort(key=lambda e: not e.name.endswith("/"))
    return _html(
        "folder.html.j2",
        name=text(folder.name, 120) if here.name else "store",
        crumbs=crumbs,
        entries=entries,
        more=max(0, len(names) - ENTRIES),
    )


def _entry(stores: Stores, path: Path) -> Entry:
    name, href = path.name, stores.path_of(path)
    found = stores.find(href)
    if found is None or not (found.is_dir() or found.is_file()):
        return Entry(text(name, 200), None, "not served")
    if found.is_dir():
        return Entry(text(name, 200) + "/", _href(href + "/"), "")
    return Entry(text(name, 200), _href(href), in_bytes(found.stat().st_size))


def _file(stores: Stores, path: Path) -> Response:
    """A plain file: reports and pages as sandboxed HTML, small text as text, all else as a download."""
    try:
        # The path has no links any more; `follow=False` rejects one that replaced the file since.
        file = opened(path, follow=False)
    except OSError:
        abort(404)
    size = os.fstat(file.fileno()).st_size
    head = os.pread(file.fileno(), 4096, 0)
    response = Response(_read(file.fileno(), size))
    # (With `direct_passthrough` this would not be called.)
    response.call_on_close(file.close)
    response.content_length = size
    if path.name == "report.html" or _is_page(stores, path):
        response.headers["Content-Type"] = "text/html; charset=utf-8"
        # (The data of a plot is in a link to download.)
        response.headers["Content-Security-Policy"] = _STRICT + "style-src 'unsafe-inline'; sandbox allow-downloads"
    elif size <= INLINE_LIMIT and _is_text(head):
        response.headers["Content-Type"] = "text/plain; charset=utf-8"
    else:
        response.headers["Content-Type"] = "application/octet-stream"
        named = quote(path.name, safe="", errors="replace")
        response.headers["Content-Disposition"] = f"attachment; filename*=UTF-8''{named}"
    return response


def _read(fd: int, size: int) -> Iterator[bytes]:
    """`size` bytes and no more: a journal may grow while it is read."""
    at = 0
    while at < size:
        piece = os.pread(fd, min(1 << 18, size - at), at)
        if not piece:
            return
        at += len(piece)
        yield piece


def _is_text(head: bytes) -> bool:
    if b"\0" in head:
        return False
    try:
        # The last character may have been cut in the middle.
        head.decode() if len(head) < 4096 else head[:-4].decode(errors="strict")
    except UnicodeDecodeError as problem:
        return len(head) == 4096 and problem.start > 4080
    return True


def _href(relative: str) -> str:
    return _FILES + quote(relative, errors="surrogateescape")


def _html(template: str, **values: object) -> Response:
    nonce = secrets.token_urlsafe(16)
    return _page(render_template(template, nonce=nonce, **values), nonce)


def _page(html: str, nonce: str = "none") -> Response:
    response = Response(html.encode("utf-8", "backslashreplace"))
    response.headers["Content-Type"] = "text/html; charset=utf-8"
    allowed = f"style-src 'unsafe-inline'; script-src 'nonce-{nonce}'; connect-src 'self'; form-action 'self'"
    response.headers["Content-Security-Policy"] = _STRICT + allowed
    return response
