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
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final
from urllib.parse import quote

from flask import Flask, Response, abort, request
from werkzeug.exceptions import HTTPException
from werkzeug.serving import ThreadedWSGIServer, WSGIRequestHandler

from results.errors import HistoryError, in_bytes
from results.reading import opened
from results.report.layout import render_template
from results.report.trends import trends_page
from results.report.words import text
from results.side_by_side import side_by_side
from results.store import RunDir
from results.trends import read_trends
from results.verdict_table import VERDICTS
from results.web_list import index as list_of_runs
from results.web_stores import FILES, Stores, href, is_page

log = logging.getLogger(__name__)

INLINE_LIMIT: Final = 8 << 20
"""Text files above so many bytes are downloads: browsers show them slowly."""
ENTRIES: Final = 2000
"""The largest number of listed entries of a folder."""

CONNECTIONS: Final = 32
"""The largest number of open connections; a browser opens six. One more is closed at once."""
IDLE_S: Final = 30.0
"""A connection that sends nothing for so long is closed."""

_HOSTS: Final = frozenset({"127.0.0.1", "localhost", "[::1]"})
_STRICT: Final = "default-src 'none'; base-uri 'none'; frame-ancestors 'none'; "


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
        return _html("index.html.j2", **list_of_runs(stores, request.args))

    @app.get("/two")
    def two() -> Response:
        return _two(stores, request.args.getlist("run"))

    @app.get("/trends")
    def trends() -> Response:
        return _trends(root, making)

    @app.get(FILES, defaults={"relative": ""})
    @app.get(FILES + "<path:relative>")
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
        heads.append((text(path, 160), href(f"{path}/report.html" if report is not None else f"{path}/")))
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
        return Response("", 301, {"Location": href(here.as_posix() + "/")})
    crumbs = [("runs", "/"), ("store", FILES)]
    crumbs += [(text(p.name, 80), href(p.as_posix() + "/")) for p in [*reversed(here.parents), here] if p.name]
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
    name, place = path.name, stores.path_of(path)
    found = stores.find(place)
    if found is None or not (found.is_dir() or found.is_file()):
        return Entry(text(name, 200), None, "not served")
    if found.is_dir():
        return Entry(text(name, 200) + "/", href(place + "/"), "")
    return Entry(text(name, 200), href(place), in_bytes(found.stat().st_size))


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
    if path.name == "report.html" or is_page(stores, path):
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


def _html(template: str, **values: object) -> Response:
    nonce = secrets.token_urlsafe(16)
    return _page(render_template(template, nonce=nonce, **values), nonce)


def _page(html: str, nonce: str = "none") -> Response:
    response = Response(html.encode("utf-8", "backslashreplace"))
    response.headers["Content-Type"] = "text/html; charset=utf-8"
    allowed = f"style-src 'unsafe-inline'; script-src 'nonce-{nonce}'; connect-src 'self'; form-action 'self'"
    response.headers["Content-Security-Policy"] = _STRICT + allowed
    return response
