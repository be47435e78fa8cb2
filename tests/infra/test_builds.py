# SPDX-License-Identifier: Apache-2.0
"""Own jars as a version of their own: what they change in the published ones, however they were compiled."""

from __future__ import annotations

import subprocess
import zipfile
from collections.abc import Mapping
from pathlib import Path

import pytest

from harness.findings.record import read_findings
from infra.machines.api import SettingsError
from infra.systems.api import Launch, LaunchRule, ServerSettings, nearest
from infra.systems.builds import Build, compare
from infra.systems.class_files import digest
from infra.systems.dledger import server as dledger
from infra.systems.java import require_unchanged
from infra.systems.maven import fetch_jars
from infra.systems.rocketmq.servers import artifacts
from infra.systems.rocketmq.topologies.controller import ControllerTopology

SOURCE = """
package org.apache.rocketmq;
import java.nio.ByteBuffer;
import java.util.function.Supplier;
public class Store {
    enum Kind { OLD, NEW }
    static final long LIMIT = 5000000000L;
    static final double SHARE = 0.25;
    private final ByteBuffer buffer = ByteBuffer.allocate(8);
    static class Slot {
        int size = 3;
    }
    interface Named { default String name() { return "Ä\\0"; } }
    int find(String key, long at) {
        switch (key) {
            case "a": return 1;
            case "b": return 2;
            default: break;
        }
        switch ((int) at) { case 1: case 2: case 3: return 7; case 900000: return 8; default: }
        Supplier<Kind> kind = () -> Kind.NEW;
        buffer.flip();
        long[][] table = new long[3][4];
        for (int i = 0; i < 300; i += 200) {
            table[0][0] += at >>> i;
        }
        try {
            return (int) table[0][0] + kind.get().ordinal() + new Slot().size;
        } catch (IllegalStateException problem) {
            return -1;
        }
    }
}
"""


def build(
    folder: Path, *options: str, source: str = SOURCE, name: str = "store.jar", more: Mapping[str, bytes] | None = None
) -> Path:
    """A folder with a jar of the source, compiled with these options."""
    classes = folder / "classes"
    classes.mkdir(parents=True)
    (folder / "Store.java").write_text(source, encoding="utf-8")
    subprocess.run(
        ["javac", "-nowarn", "-encoding", "UTF-8", *options, "-d", str(classes), str(folder / "Store.java")],
        check=True,
        capture_output=True,
        timeout=120,
    )
    with zipfile.ZipFile(folder / name, "w") as jar:
        for path in sorted(classes.rglob("*.class")):
            jar.write(path, path.relative_to(classes).as_posix())
        for entry, content in (more or {}).items():
            jar.writestr(entry, content)
    return folder


@pytest.fixture(scope="module")
def published(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build(tmp_path_factory.mktemp("published"), "--release", "8", "-g:none", more={"com/lib/A.class": b"1"})


@pytest.mark.slow
def test_the_same_source_is_unchanged_however_it_was_compiled(published: Path, tmp_path: Path) -> None:
    """Other bytes do not make another class. Of the 535 classes of two modules of 5.5.0, JDK 17 in place of JDK 8 makes
    535 with other bytes, and 21 with another digest.
    """
    own = build(tmp_path, "--release", "8", "-g", name="other.jar")
    assert compare([own], published, "5.5.0") == Build("5.5.0")
    with zipfile.ZipFile(own / "other.jar") as new, zipfile.ZipFile(published / "store.jar") as old:
        name = "org/apache/rocketmq/Store.class"
        assert new.read(name) != old.read(name)


NIGHT = [
    pytest.param(*change, marks=pytest.mark.nightly)
    for change in (
        ("OLD, NEW", "NEW, OLD"),
        ("size = 3", "size = 4"),
        ("Kind.NEW", "Kind.OLD"),
        ("900000", "900001"),
        ("case 3:", "case 4:"),
        ('case "b"', 'case "c"'),
        ("new long[3][4]", "new long[4][3]"),
        ("i += 200", "i += 201"),
        ("at >>> i", "at >> i"),
        ("IllegalStateException problem", "IllegalArgumentException problem"),
        ("return -1", "return -2"),
        ('"Ä', '"Ö'),
        ("buffer.flip", "buffer.rewind"),
        ("private final ByteBuffer", "final ByteBuffer"),
    )
]
"""A second of javac each."""


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("return 7", "return 6"),
        ("5000000000L", "5000000001L"),
        ("0.25", "0.5"),
        ("int find", "public int find"),
        *NIGHT,
    ],
)
@pytest.mark.slow
def test_a_change_in_any_class_is_one_of_its_outermost_class(
    before: str, after: str, published: Path, tmp_path: Path
) -> None:
    """Nothing that changes what a class does may be taken for unchanged: findings and mends of it would apply."""
    assert before in SOURCE
    own = build(tmp_path, "--release", "8", source=SOURCE.replace(before, after))
    found = compare([own], published, "5.5.0")
    assert (found.changed, found.added, found.libraries) == (("org.apache.rocketmq.Store",), (), ())
    assert found.describe() == "5.5.0 + 1 changed class (Store)"


@pytest.mark.slow
def test_new_classes_and_other_libraries_are_counted_apart(published: Path, tmp_path: Path) -> None:
    """The first jar of the class path has a class; what no jar of the system under test has is a library."""
    own = build(tmp_path, "--release", "8", more={"com/lib/A.class": b"2", "META-INF/versions/9/x.class": b"3"})
    with zipfile.ZipFile(own / "zz.jar", "w") as jar:
        jar.writestr("org/apache/rocketmq/Store.class", b"later in the class path")
        jar.writestr("org/apache/rocketmq/Fresh$1.class", b"new")
    found = compare([own], published, "5.5.0")
    assert (found.changed, found.added, found.libraries) == ((), ("org.apache.rocketmq.Fresh",), ("store.jar",))
    assert found.describe() == "5.5.0 + 1 new class (Fresh), 1 other library (store.jar)"
    many = Build("5.5.0", [f"a.B{n}" for n in range(7)], asked="5.6.0")
    assert many.describe() == "5.6.0 (beside 5.5.0) + 7 changed classes (B0, B1, B2, B3, B4 and 2 more)"


def test_what_is_no_jar_is_one_line(published: Path, tmp_path: Path) -> None:
    """A damaged jar is an error of the user's, and names the file; a damaged class counts as changed."""
    (tmp_path / "bad.jar").write_bytes(b"PK no")
    with pytest.raises(SettingsError, match=r"--server-jars: .*bad\.jar is no jar"):
        compare([tmp_path], published, "5.5.0")
    for data in (b"", b"\xca\xfe\xba\xbe", b"\xca\xfe\xba\xbe\0\0\0\x34\0\x05\x07\0\x09", b"x" * 100):
        with pytest.raises(ValueError, match="not a class file"):
            digest(data)


# Versions that are not pinned.


@pytest.mark.parametrize(
    ("version", "pinned"),
    [
        ("5.6.0", "5.5.0"),
        ("5.5.1", "5.5.0"),
        ("5.3.9-SNAPSHOT", "5.3.3"),
        ("4.9.8", "5.1.0"),
        ("develop", "5.5.0"),
        ("5.4.0", "5.4.0"),
    ],
)
def test_the_nearest_version(version: str, pinned: str) -> None:
    """The newest one that is not newer; for a name without numbers the newest."""
    assert nearest(version, artifacts.VERSIONS) == pinned


def test_own_jars_may_have_a_version_that_is_not_pinned(published: Path) -> None:
    """Servers get the nearest version's jars behind the user's own, for all servers or by a rule."""
    launch = Launch("5.6.0", jars=published)
    topology = ControllerTopology(ServerSettings(launch=launch))
    assert (topology.version, topology._all_versions()) == ("5.5.0", ["5.5.0"])
    assert topology._builds()[0].describe().startswith("5.6.0 (beside 5.5.0) + ")
    topology = ControllerTopology(ServerSettings(rules=[LaunchRule(Launch("5.4.7", jars=published))]))
    assert topology._all_versions() == ["5.5.0", "5.4.0"]
    with pytest.raises(
        SettingsError, match=r"5.6.0 is not pinned here, only .*; a build of your own needs --server-jars"
    ):
        ControllerTopology(ServerSettings(launch=Launch("5.6.0")))


def test_a_mend_of_a_changed_class_is_refused() -> None:
    """The line has the mends that are left."""
    name = "org.apache.rocketmq.store.ha.autoswitch.AutoSwitchHAService"
    require_unchanged([5, 6], [Build("5.5.0", ["org.apache.rocketmq.Other"])])
    with pytest.raises(
        SettingsError, match=r"--mend 5: for AutoSwitchHAService of the published jars, .*; --mend 6 is"
    ):
        require_unchanged([5, 6], [Build("5.5.0", [name])])
    with pytest.raises(SettingsError, match="no --mend is right"):
        require_unchanged([5], [Build("5.5.0", [name])])


def test_the_classes_that_findings_name_exist() -> None:
    """In the jars that the set-up fetches: a finding with a mistyped class would apply to every build."""
    folders = [artifacts.fetch(artifacts.DEFAULT_VERSION), fetch_jars(dledger.POM, dledger.LOCK)]
    there = set()
    for jar in (jar for folder in folders for jar in folder.glob("*.jar")):
        with zipfile.ZipFile(jar) as archive:
            there |= {name.rpartition("/")[2].removesuffix(".class") for name in archive.namelist()}
    elsewhere = {"StringIdMaker", "RebalancePush", "TcpRemotingClient"}  # of the C++ client
    for finding in read_findings():
        assert finding.touches <= there | elsewhere, finding.file
