# SPDX-License-Identifier: Apache-2.0
"""A package of the user's with the name of one of the harness: one line says which, where, and the remedy."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from rocketmq_harness.hidden import OURS, HiddenPackage, require_ours

ROOT = Path(__file__).parents[2]
CONSOLE = "import sys; from rocketmq_harness.__main__ import main; main(['--version'])"
"""The lines of the script that pip makes of the entry point."""


def python(folder: Path, *argv: str, path: str = str(ROOT)) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "PYTHONPATH": path}
    return subprocess.run(
        [sys.executable, *argv], cwd=folder, env=environment, capture_output=True, text=True, check=False
    )


def plant(folder: Path, name: str) -> Path:
    (folder / name).mkdir()
    (folder / name / "__init__.py").write_text("")
    return folder / name


def test_our_own_packages_hide_nothing() -> None:
    require_ours()


@pytest.mark.parametrize("name", ["results", "infra"])
@pytest.mark.parametrize("module", ["rocketmq_harness", "harness", "harness.cli"])
@pytest.mark.slow
def test_a_package_in_the_working_directory_is_one_line(name: str, module: str, tmp_path: Path) -> None:
    """As `python -m` it is found first. Until now: a traceback that ends in `No module named 'results.visible'`."""
    place = plant(tmp_path, name)
    done = python(tmp_path, "-m", module, "--version")
    assert (done.returncode, done.stdout) == (64, "")
    assert done.stderr == (
        f"harness: {str(place)!r} hides the package {name!r} of rocketmq-harness ({str(ROOT / name)!r}); "
        "rename it, or start in another folder or with python -P\n"
    )
    assert python(tmp_path, "-P", "-m", module, "--version").returncode == 0


@pytest.mark.parametrize("name", OURS)
def test_the_console_script_names_a_package_on_the_path(name: str, tmp_path: Path) -> None:
    place = plant(tmp_path, name)
    done = python(ROOT.parent, "-P", "-c", CONSOLE, path=os.pathsep.join((str(tmp_path), str(ROOT))))
    assert (done.returncode, done.stdout, done.stderr.count("\n")) == (64, "", 1)
    assert done.stderr.startswith(f"harness: {str(place)!r} hides the package {name!r} of rocketmq-harness ")
    assert done.stderr.endswith(f"; rename it, or remove {str(tmp_path)!r} from PYTHONPATH\n")


def test_the_console_script_does_not_look_into_the_working_directory(tmp_path: Path) -> None:
    plant(tmp_path, "results")
    done = python(tmp_path, "-P", "-c", CONSOLE)
    assert done.returncode == 0, done.stderr
    assert "rocketmq" in done.stdout or "harness" in done.stdout


def test_a_folder_of_runs_hides_nothing(tmp_path: Path) -> None:
    """The store is `results/runs` in the working directory: a folder without code."""
    (tmp_path / "results" / "runs").mkdir(parents=True)
    done = python(tmp_path, "-m", "rocketmq_harness", "--version")
    assert done.returncode == 0, done.stderr


def test_a_module_hides_a_package_too(tmp_path: Path) -> None:
    (tmp_path / "checkers.py").write_text("")
    done = python(tmp_path, "-m", "rocketmq_harness", "--version")
    assert done.returncode == 64
    assert f"{str(tmp_path / 'checkers.py')!r} hides the package 'checkers'" in done.stderr


def test_an_import_says_the_same(tmp_path: Path) -> None:
    """Python shows where the import stands, and then the line."""
    place = plant(tmp_path, "results")
    (tmp_path / "script.py").write_text("from rocketmq_harness import Op\n")
    done = python(tmp_path, "script.py")
    assert done.returncode == 1
    assert done.stderr.splitlines()[-1].startswith(f"rocketmq_harness.hidden.HiddenPackage: {str(place)!r} hides")


def test_packages_elsewhere_than_beside_the_public_names_are_refused(tmp_path: Path) -> None:
    with pytest.raises(HiddenPackage, match="hides the package 'harness' of rocketmq-harness"):
        require_ours(tmp_path)
