# SPDX-License-Identifier: Apache-2.0
"""The web view: it lists, searches and serves a store, and nothing outside it."""

from __future__ import annotations

import os
import re
import socket
import threading
import urllib.request
from datetime import datetime, timedelta
from pathlib import Path

import pytest
from flask.testing import FlaskClient

from results.store import RunDir, Store
from results.verdict import CheckResult, Judgement, Verdict
from results.verdict_file import write_verdict
from results.web import CONNECTIONS, INLINE_LIMIT, Server, create_app, serve
from results.web_list import PAGE
from results.web_stores import confined

NOON = datetime(2026, 11, 21, 12, 0, 0)
NO_MENDS = "workload = 4\n[server]\nmends = 7"
PLAN = 'workload = "register"\n[[nemesis]]\nfault = "hammer-time"\n[[nemesis]]\nfault = "bridge"\n'


@pytest.fixture
def root(tmp_path: Path) -> Path:
    at = tmp_path / "runs"
    at.mkdir()
    return at


def add_run(root: Path, name: str, minutes: int, verdict: Verdict | None, reason: str = "as it is") -> RunDir:
    run = Store(root).create(name, PLAN, NOON + timedelta(minutes=minutes))
    if verdict is not None:
        write_verdict(Judgement([CheckResult("stats", verdict, reason)]), run.verdict)
        run.report.write_text(f"<!doctype html><title>{verdict.value}</title>")
    return run


def browse(root: Path) -> FlaskClient:
    return create_app(root).test_client()


def rows(html: str) -> list[str]:
    """The rows of the list as text."""
    found = re.findall(r"<tr><td.*?</tr>", html, flags=re.DOTALL)
    return [" ".join(re.sub(r"<[^>]*>", " ", row).split()) for row in found]


# The list


def test_list_shows_the_newest_first_with_links_that_work(root: Path) -> None:
    add_run(root, "register-hammer-time+bridge", 0, Verdict.VALID)
    add_run(root, "register-none", 5, Verdict.INVALID, "k3 <b>went</b> back")
    add_run(root, "register-none", 9, None)
    client = browse(root)
    html = client.get("/").text
    assert [re.sub(r"\d+ bytes", "SIZE", row) for row in rows(html)] == [
        "2026-11-21 12:09:00 register hammer-time, bridge unfinished no verdict: the run is still active, or was "
        "interrupted SIZE files",
        "2026-11-21 12:05:00 register hammer-time, bridge invalid stats: k3 &lt;b&gt;went&lt;/b&gt; back SIZE report "
        "files",
        "2026-11-21 12:00:00 register hammer-time, bridge valid stats: as it is SIZE report files",
    ]
    links = re.findall(r'href="(/files/[^"]+)"', html)
    assert len(links) == 5
    assert [client.get(link).status_code for link in links] == [200] * 5


def test_list_of_no_runs_says_how_to_make_one(root: Path) -> None:
    assert "harness run" in browse(root).get("/").text
    assert browse(root / "missing").get("/").status_code == 200


def test_search_takes_all_words_in_any_column(root: Path) -> None:
    add_run(root, "register-hammer-time", 0, Verdict.INVALID, "Never recovered")
    quiet = add_run(root, "register-none", 5, Verdict.INVALID, "stale read")
    quiet.plan.write_text('workload = "register"\nseed = 77\n[server]\nversion = "5.4.0"\nmends = ["16"]\n')
    add_run(root, "queue-hammer-time", 9, Verdict.VALID)
    client = browse(root)

    def times(query: str) -> list[str]:
        return [row[14:16] for row in rows(client.get("/", query_string={"q": query}).text)]

    assert times("hammer") == ["09", "00"]
    assert times("INVALID hammer") == ["00"]
    assert times("recovered") == ["00"]
    assert times("12:05") == ["05"]
    assert times("5.4.0") == times("77") == ["05"]
    assert times("nothing-of-it") == []
    assert 'value="&lt;script&gt;"' in client.get("/?q=<script>").text


def test_sorting_by_name_and_verdict_keeps_the_newest_first_among_equals(root: Path) -> None:
    for minutes, name, verdict in [(0, "b", "valid"), (1, "a", "invalid"), (2, "b", "invalid"), (3, "a", "valid")]:
        add_run(root, name, minutes, Verdict(verdict))
    client = browse(root)

    def order(query: str) -> list[int]:
        return [int(row[14:16]) for row in rows(client.get(f"/?{query}").text)]

    assert order("") == order("sort=time") == order("sort=nonsense&page=x") == [3, 2, 1, 0]
    assert order("sort=time&order=asc") == [0, 1, 2, 3]
    assert order("sort=name") == [3, 1, 2, 0]
    assert order("sort=verdict") == [2, 1, 3, 0]
    assert order("sort=verdict&order=desc") == [3, 0, 2, 1]


def test_long_lists_come_in_pages(root: Path) -> None:
    for minutes in range(PAGE + 3):
        add_run(root, "register-none", minutes, None)
    client = browse(root)
    assert len(rows(client.get("/").text)) == PAGE
    assert "page 1 of 2" in client.get("/").text
    last = client.get("/?page=2").text
    assert len(rows(last)) == 3
    assert rows(client.get("/?page=99999999").text) == rows(last)
    assert "page=1" in last


# Folders and files


def test_folder_lists_its_names_and_leads_back(root: Path) -> None:
    run = add_run(root, "register-none", 0, Verdict.VALID)
    (run.nodes / "n1").mkdir()
    (run.nodes / "n1" / "a#b?c <i>.log").write_text("x")
    client = browse(root)
    here = f"/files/register-none/{run.path.name}"
    assert client.get(here).headers["Location"] == f"{here}/"
    html = client.get(f"{here}/nodes/n1/").text
    (href,) = re.findall(r'<td class="any"><a href="([^"]+)"', html)
    assert client.get(href).data == b"x"
    assert "&lt;i&gt;" in html
    assert f'<a href="{here}/nodes/">nodes</a>' in html
    (run.nodes / "n2").mkdir()
    assert "This folder is empty." in client.get(f"{here}/nodes/n2/").text


def test_only_the_report_is_html_and_it_may_run_nothing(root: Path) -> None:
    run = add_run(root, "register-none", 0, Verdict.VALID)
    (run.path / "evil.html").write_text("<script>alert(1)</script>")
    (run.path / "verdict.xml").write_text("<a/>")
    (run.path / "history.parquet").write_bytes(b"PAR1\x00\xff")
    (run.path / "umlaut.log").write_text("ä" * 5000)
    client = browse(root)
    at = f"/files/register-none/{run.path.name}"
    report = client.get(f"{at}/report.html")
    assert report.mimetype == "text/html"
    assert "Content-Disposition" not in report.headers
    policy = report.headers["Content-Security-Policy"]
    assert "default-src 'none'" in policy
    assert "sandbox allow-downloads" in policy, "a link to the data of a plot is a download"
    assert "allow-scripts" not in policy
    assert "script-src" not in policy
    for name in ("evil.html", "verdict.xml", "plan.toml", "umlaut.log"):
        assert client.get(f"{at}/{name}").mimetype == "text/plain"
    parquet = client.get(f"{at}/history.parquet")
    assert parquet.headers["Content-Disposition"] == "attachment; filename*=UTF-8''history.parquet"
    assert parquet.data == b"PAR1\x00\xff"
    assert {client.get(url).headers["X-Content-Type-Options"] for url in ("/", at, f"{at}/evil.html")} == {"nosniff"}


def test_scripts_of_the_list_are_named_one_by_one(root: Path) -> None:
    first, second = browse(root).get("/"), browse(root).get("/")
    nonce = re.search(r"script-src 'nonce-([^']+)'", first.headers["Content-Security-Policy"])
    assert nonce
    assert f'<script nonce="{nonce[1]}">' in first.text
    assert nonce[1] not in second.text


def test_large_logs_are_downloads_and_come_whole(root: Path) -> None:
    (root / "big.log").write_bytes(b"line\n" * (INLINE_LIMIT // 5 + 1))
    answer = browse(root).get("/files/big.log")
    assert answer.headers["Content-Disposition"].startswith("attachment")
    assert len(answer.data) == answer.content_length == (INLINE_LIMIT // 5 + 1) * 5


# What must not be


@pytest.mark.parametrize(
    "path",
    [
        "/files/../secret.txt",
        "/files/..%2fsecret.txt",
        "/files/%2e%2e/secret.txt",
        "/files/register-none/../../secret.txt",
        "/files//{outside}/secret.txt",
        "/files/%2f{outside}/secret.txt",
        "/files/out/secret.txt",
        "/files/out/",
        "/files/out.txt",
        "/files/loop",
        "/files/a%00b",
        "/files/pipe",
        "/files/" + "x" * 5000,
        "/secret.txt",
    ],
)
def test_nothing_outside_the_store_is_served(root: Path, path: str) -> None:
    outside = root.parent
    (outside / "secret.txt").write_text("secret")
    add_run(root, "register-none", 0, Verdict.VALID)
    (root / "out").symlink_to(outside)
    (root / "out.txt").symlink_to(outside / "secret.txt")
    (root / "loop").symlink_to(root / "loop")
    os.mkfifo(root / "pipe")
    answer = browse(root).get(path.format(outside=outside))
    assert answer.status_code in (404, 308)
    assert b"secret" not in answer.data.replace(b"secret.txt", b"")


def test_links_inside_the_store_are_followed_and_others_are_named_without_a_way_in(root: Path) -> None:
    run = add_run(root, "register-none", 0, Verdict.VALID)
    (root / "out").symlink_to(root.parent)
    client = browse(root)
    assert client.get("/files/latest/plan.toml").text == PLAN
    html = client.get("/files/").text
    assert re.search(r'<td class="any">out</td><td class="n">not served</td>', html)
    assert confined(root.resolve(), f"register-none/{run.path.name}/plan.toml") == run.plan.resolve()
    assert confined(root.resolve(), "") == root.resolve()


def test_it_only_reads(root: Path) -> None:
    client = browse(root)
    for method in ("post", "put", "delete", "patch"):
        assert getattr(client, method)("/").status_code == 405
        assert getattr(client, method)("/files/x").status_code == 405


def test_another_sites_name_for_this_machine_is_refused(root: Path) -> None:
    client = browse(root)
    for host in ("evil.example", "evil.example:8080", "127.0.0.1.evil.example"):
        assert client.get("/", headers={"Host": host}).status_code == 403
    for host in ("127.0.0.1", "127.0.0.1:8080", "localhost:8080", "[::1]:8080"):
        assert client.get("/", headers={"Host": host}).status_code == 200


def test_a_row_names_the_servers_the_seed_and_the_size(root: Path) -> None:
    """The facts that distinguish runs of the same kind."""
    run = add_run(root, "register-none", 0, Verdict.VALID)
    servers = (
        'topology = "controller"\nprofile = "strict"\nversion = "5.5.0"\njars = "lib"\nmends = ["5", "2001-x.toml"]\n'
    )
    run.plan.write_text(f"workload = 'register'\nseed = 77\n[server]\n{servers}")
    (run.nodes / "n1.log").write_text("x" * (1 << 20))
    (row,) = rows(browse(root).get("/").text)
    assert "register none controller strict 5.5.0 own jars: lib 5, 2001 77 valid" in row
    assert "1.0 MiB report files" in row


def test_a_plan_that_is_none_of_ours_leaves_the_folders_name(root: Path) -> None:
    run = add_run(root, "register-none", 0, Verdict.VALID)
    for plan in ("= broken", "nemesis = 3\nworkload = 4", "[workload]\n", "", "workload = 'x'\nserver = 3", NO_MENDS):
        run.plan.write_text(plan)
        assert browse(root).get("/").status_code == 200
    assert "register-none" in rows(browse(root).get("/").text)[0]


# Other stores, and two runs side by side


def test_the_runs_of_nights_and_comparisons_are_in_the_list(root: Path) -> None:
    """With their pages, which may run nothing."""
    night = root.parent / "nightly"
    add_run(root, "register-none", 0, Verdict.VALID)
    add_run(night, "queue-bridge", 5, Verdict.INVALID)
    (night / "nightly.html").write_text("<h1>Night</h1>")
    client = create_app(root, others={"nightly": night}).test_client()
    html = client.get("/").text
    assert [("nightly" in row, row[11:16]) for row in rows(html)] == [(True, "12:05"), (False, "12:00")]
    assert len(rows(client.get("/?q=nightly").text)) == 1
    for link in re.findall(r'href="(/files/@nightly[^"]*)"', html):
        assert client.get(link).status_code == 200, link
    page = client.get("/files/@nightly/nightly.html")
    assert page.content_type.startswith("text/html")
    assert "sandbox" in page.headers["Content-Security-Policy"]
    assert client.get("/files/@nightly/queue-bridge/2026-11-21T12-05-00").status_code == 301


@pytest.mark.parametrize("path", ["@nightly/../secret", "@nightly/out", "@other/x", "@nightly//../secret", "@/secret"])
def test_nothing_outside_of_another_store_is_served(root: Path, path: str) -> None:
    night = root.parent / "nightly"
    night.mkdir()
    (root.parent / "secret").write_text("secret")
    (night / "out").symlink_to(root.parent / "secret")
    client = create_app(root, others={"nightly": night}).test_client()
    assert client.get(f"/files/{path}").status_code in (308, 404)


def test_two_runs_side_by_side(root: Path) -> None:
    one = add_run(root, "register-none", 0, Verdict.VALID, "fine")
    other = add_run(root, "register-none", 5, Verdict.INVALID, "k3 <b>went</b> back")
    other.plan.write_text(PLAN + '[server]\nversion = "5.4.0"\n')
    client = browse(root)
    named = [run.path.relative_to(root).as_posix() for run in (one, other)]
    assert all(f'name="run" value="{name}"' in client.get("/").text for name in named)
    html = client.get("/two", query_string=[("run", name) for name in named]).text
    assert (
        '<tr class="differs"><th scope="row">server.version</th><td class="any small"></td><td class="any small">5.4.0'
        in html
    )
    assert '<tr><th scope="row">workload</th>' in html
    assert "k3 &lt;b&gt;went&lt;/b&gt; back" in html
    for link in re.findall(r'href="(/files/[^"]*)"', html):
        assert client.get(link).status_code == 200, link


@pytest.mark.parametrize("query", ["", "run=register-none", "run=a&run=b", "run=../x&run=../x", "run=x&run=x&run=x"])
def test_two_runs_must_be_named(root: Path, query: str) -> None:
    add_run(root, "register-none", 0, Verdict.VALID)
    answer = browse(root).get(f"/two?{query}")
    assert (answer.status_code, answer.content_type.partition(";")[0]) == (400, "text/plain")


def test_a_run_without_a_verdict_has_no_other_side(root: Path) -> None:
    runs = [add_run(root, "register-none", minutes, None) for minutes in (0, 5)]
    named = [("run", run.path.relative_to(root).as_posix()) for run in runs]
    assert browse(root).get("/two", query_string=named).status_code == 404


# Serving


def test_serves_on_this_machine_only_and_says_where(root: Path, capsys: pytest.CaptureFixture[str]) -> None:
    add_run(root, "register-none", 0, Verdict.VALID)
    threading.Thread(target=serve, args=(root,), kwargs={"port": 0}, daemon=True).start()
    output = ""
    for _ in range(1000):
        output += capsys.readouterr().out
        if "\n" in output:
            break
        threading.Event().wait(0.01)
    address = re.match(r"http://127\.0\.0\.1:\d+/", output)
    assert address
    with urllib.request.urlopen(address[0], timeout=10) as answer:
        assert "register" in answer.read().decode()


def test_a_port_that_is_taken_is_an_oserror(root: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken, pytest.raises(OSError, match="in use"):
        serve(root, port=taken.getsockname()[1])


# What runs and clients may do to it


def test_what_was_viewed_is_closed(root: Path) -> None:
    run = add_run(root, "log-none", 0, Verdict.VALID)
    client = browse(root)
    url = f"/files/log-none/{run.path.name}/plan.toml"
    before = len(os.listdir("/proc/self/fd"))
    for method in (client.get, client.head):
        for _ in range(10):
            assert method(url).status_code == 200
    assert len(os.listdir("/proc/self/fd")) <= before


@pytest.mark.parametrize("name", ["verdict.json", "plan.toml"])
@pytest.mark.parametrize(
    "data", ["[" * 100_000, "[" * 900, "a = " + "[" * 900, '{"verdict": "valid", "reason": [1]}', "\udcff"]
)
def test_one_odd_run_breaks_no_list(name: str, data: str, root: Path) -> None:
    add_run(root, "log-none", 0, Verdict.VALID)
    bad = add_run(root, "log-none", 1, Verdict.VALID)
    (bad.path / name).write_bytes(data.encode("utf-8", "surrogateescape"))
    page = browse(root).get("/")
    assert page.status_code == 200
    assert len(rows(page.text)) == 2
    assert ("unreadable" in page.text) == (name == "verdict.json")


@pytest.mark.parametrize("name", ["verdict.json", "plan.toml", "report.html"])
@pytest.mark.parametrize("kind", ["device", "pipe", "outside", "hole"])
def test_no_file_of_a_run_leads_out_of_the_store_or_has_no_end(
    name: str, kind: str, root: Path, tmp_path: Path
) -> None:
    (tmp_path / "secret").write_text('{"verdict": "valid", "reason": "the secret"}')
    bad = add_run(root, "log-none", 1, Verdict.VALID)
    path = bad.path / name
    path.unlink()
    if kind == "pipe":
        os.mkfifo(path)
    elif kind == "hole":
        with path.open("wb") as file:
            file.truncate(10 << 30)
    else:
        path.symlink_to("/dev/zero" if kind == "device" else tmp_path / "secret")
    page = browse(root).get("/")
    assert page.status_code == 200
    assert "the secret" not in page.text
    if name == "verdict.json":
        assert "verdict.json cannot be read" in page.text
    if kind != "hole":
        assert browse(root).get(f"/files/log-none/{bad.path.name}/{name}").status_code == 404


def test_an_error_nobody_foresaw_is_a_page_and_a_line(
    root: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr("results.web_list._rows", lambda root: 1 / 0)
    page = browse(root).get("/")
    assert page.status_code == 500
    assert "ZeroDivisionError" not in page.text
    assert "/: ZeroDivisionError: division by zero" in caplog.text


def test_more_connections_than_places_are_closed(root: Path) -> None:
    """Those that wait have a place each; who comes later is closed at once, and is served when one of them has gone."""
    server = Server("127.0.0.1", 0, create_app(root))
    threading.Thread(target=server.serve_forever, daemon=True).start()
    waiting = [socket.create_connection(server.server_address, timeout=10) for _ in range(CONNECTIONS)]
    try:
        late = socket.create_connection(server.server_address, timeout=10)
        assert late.recv(1) == b""
        late.close()
        waiting.pop().close()
        for _ in range(100):
            try:
                with urllib.request.urlopen(f"http://127.0.0.1:{server.server_port}/", timeout=10) as page:
                    assert page.status == 200
                break
            except OSError:
                threading.Event().wait(0.05)
        else:
            pytest.fail("no place became free")
    finally:
        for one in waiting:
            one.close()
        server.shutdown()
        server.server_close()
