# SPDX-License-Identifier: Apache-2.0
"""The node image: one root file system, built without a container registry, for the docker and the local backend.

`mmdebstrap` builds a Debian tar in about half a minute. Most of this time is dpkg and maintainer scripts, so the
finished tar is cached. It is in the cache folder, and its name contains a hash of all its inputs. The packages come
from the sources of this machine's own apt: its Debian sources, its proxy.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import platform
import re
import shutil
import subprocess
import tempfile
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Final

from infra.machines.api import InfraError
from results.cache import cache_dir, exclusive

Say = Callable[[str], None]
"""The receiver of progress: one line each, no line end."""

SUITE: Final = "bookworm"
PACKAGES: Final = (
    # the way in, and the tools that faults and probes use
    *("openssh-server", "iptables", "nftables", "ipset", "iproute2", "procps", "psmisc", "iputils-ping"),
    *("netcat-openbsd", "libcap2-bin", "faketime", "python3"),
    # not part of a small variant; `util-linux-extra` holds fincore
    *("mount", "util-linux", "util-linux-extra", "e2fsprogs"),
    # what runs the servers
    "openjdk-17-jre-headless",
)
RECIPE: Final = 1
"""Raise it when the recipe below changes in a way that the other inputs of the hash do not show."""

_EXCLUDED: Final = ("/usr/share/man/*", "/usr/share/doc/*", "/usr/share/locale/*")
_APT_SETTINGS: Final = re.compile(
    r"Acquire::\S*(?:Proxy|CaInfo|CaPath|Verify|Check-Valid-Until|Check-Date|Retries|Timeout)\S* ",
    re.IGNORECASE,
)
_STAGES: Final = ("I: downloading", "I: extracting", "I: installing", "I: creating", "I: success")
"""The beginnings of mmdebstrap's lines that a waiting user wants to see."""
_BASE_NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._/:@-]{0,254}")


def image_id() -> str:
    """Twelve hex digits that change whenever the image would."""
    recipe = json.dumps([RECIPE, SUITE, PACKAGES, _EXCLUDED, platform.machine()])
    return hashlib.sha256(recipe.encode()).hexdigest()[:12]


def tar_path() -> Path:
    """The path of the tar, which may not exist yet."""
    return cache_dir() / f"rootfs-{image_id()}.tar"


def image_build() -> str | None:
    """The build of the image in the cache, or None. Packages of two builds may have different versions."""
    try:
        about = tar_path().stat()
    except FileNotFoundError:
        return None
    return f"{image_id()}-{about.st_size:x}-{about.st_mtime_ns:x}"


def ensure_tar(say: Say) -> Path:
    """The image as a tar; made if it is not in the cache. Several processes may call at once: one makes it, all wait.

    Raises InfraError if the build fails; no partial file is left under its name.
    """
    tar = tar_path()
    with exclusive(f"rootfs-{image_id()}"):
        if tar.exists():
            return tar
        require_tools("mmdebstrap", "tar")
        log = tar.with_suffix(".log")
        partial = tar.with_name(f"{tar.stem}.partial.tar")  # the name must end in .tar: mmdebstrap goes by it
        partial.unlink(missing_ok=True)
        say(f"image: building the node image {image_id()} (Debian {SUITE}; about a minute, once)")
        try:
            _build(partial, log, say)
            partial.rename(tar)
        finally:
            partial.unlink(missing_ok=True)
        say(f"image: {tar} ({tar.stat().st_size >> 20} MiB)")
    return tar


def ensure_rootfs(say: Say) -> Path:
    """The image as a folder, to be mounted below an overlay and never written to. Needs root (owners, set-uid bits)."""
    tar = ensure_tar(say)
    folder = tar.with_suffix("")
    with exclusive(f"{folder.name}-folder"):
        if folder.exists():
            return folder
        partial = folder.with_name(f"{folder.name}.partial")
        shutil.rmtree(partial, ignore_errors=True)
        partial.mkdir()
        say(f"image: unpacking it to {folder}")
        argv = ["tar", "-x", "--numeric-owner", "--xattrs", "--xattrs-include=*", "-f", str(tar), "-C", str(partial)]
        result = subprocess.run(argv, capture_output=True, text=True, check=False)
        if result.returncode != 0:
            shutil.rmtree(partial, ignore_errors=True)
            raise InfraError(f"cannot unpack {tar} to {folder}: {_last_line(result.stderr)}")
        partial.rename(folder)
    return folder


def dockerfile(base: str) -> str:
    """The same packages on top of an image that can be pulled. Raises InfraError if `base` is no image name."""
    if not _BASE_NAME.fullmatch(base):
        raise InfraError(f"{base!r} is not an image name: expected something like debian:{SUITE}-slim")
    return (
        f"FROM {base}\n"
        "RUN apt-get update"
        f" && DEBIAN_FRONTEND=noninteractive apt-get install -y --no-install-recommends {' '.join(PACKAGES)}"
        " && rm -rf /var/lib/apt/lists/* /etc/ssh/ssh_host_*\n"
    )


def debian_sources(files: Mapping[str, str], codename: str) -> list[str]:
    """The lines `deb [...] URI SUITE COMPONENTS` for the image's suite, derived from a machine's own apt files.

    files     name -> text, of `sources.list` and `sources.list.d/*`: one-line (`.list`) or deb822 (`.sources`) style,
              see sources.list(5).
    codename  this machine's Debian release; its suites are read as the image's (an older mirror address serves both).
    Only Debian's own archives count: suites `NAME`, `NAME-updates`, `NAME-security` with a component `main`. Other
    sources of a machine (a database, a cloud's tools) do not belong into the image.
    """
    lines = []
    for name, text in sorted(files.items()):
        stanzas = _deb822(text) if name.endswith(".sources") else _one_line(text)
        for options, uris, suites, components in stanzas:
            wanted = [s for s in suites if s in (codename, f"{codename}-updates", f"{codename}-security")]
            if "main" not in components:
                continue
            for uri in uris:
                lines += [f"deb {options}{uri} {suite.replace(codename, SUITE, 1)} main" for suite in wanted]
    return list(dict.fromkeys(lines))


def apt_settings(dump: str) -> list[str]:
    """The lines of `apt-config dump` that configure downloads (proxy, certificates, time checks, retries)."""
    return [line for line in dump.splitlines() if _APT_SETTINGS.match(line)]


_Stanza = tuple[str, list[str], list[str], list[str]]
"""Options (`[signed-by=...] ` or nothing), URIs, suites, components."""


def _one_line(text: str) -> Iterable[_Stanza]:
    for raw in text.splitlines():
        found = re.fullmatch(r"deb\s+(\[[^]]*\]\s+)?(\S+)\s+(\S+)\s+(.+)", raw.split("#", 1)[0].strip())
        if found:
            options = f"{found[1].strip()} " if found[1] else ""
            yield options, [found[2]], [found[3]], found[4].split()


def _deb822(text: str) -> Iterable[_Stanza]:
    plain = "\n".join(line for line in text.splitlines() if not line.startswith("#"))
    for block in re.split(r"\n\s*\n", plain):
        fields: dict[str, list[str]] = {}
        key = ""
        for line in block.splitlines():
            if line[:1].isspace():  # a folded line continues with the field above
                fields.setdefault(key, []).extend(line.split())
            elif ":" in line:
                key, value = line.split(":", 1)
                key = key.strip().lower()
                fields[key] = value.split()
        if "deb" not in fields.get("types", []) or fields.get("enabled") == ["no"]:
            continue
        signed = fields.get("signed-by", [])
        # A key written out in the file itself cannot be on one line: mmdebstrap's own Debian keyring does then.
        options = f"[signed-by={signed[0]}] " if len(signed) == 1 and signed[0].startswith("/") else ""
        yield options, fields.get("uris", []), fields.get("suites", []), fields.get("components", [])


def apt_sources() -> list[str]:
    """The image's suite as this machine's apt fetches it; empty if it is no Debian (then mmdebstrap's default)."""
    try:
        release = dict(line.split("=", 1) for line in Path("/etc/os-release").read_text().splitlines() if "=" in line)
    except OSError:
        return []
    if release.get("ID", "").strip('"') != "debian":
        return []
    etc = Path("/etc/apt")
    files = [etc / "sources.list", *etc.glob("sources.list.d/*.list"), *etc.glob("sources.list.d/*.sources")]
    texts = {str(f): f.read_text(errors="replace") for f in files if f.is_file()}
    return debian_sources(texts, release.get("VERSION_CODENAME", SUITE).strip('"'))


def _build(tar: Path, log: Path, say: Say) -> None:
    """Runs mmdebstrap, with its output in `log` and its stages passed to `say`."""
    argv = ["mmdebstrap", "--variant=apt", f"--include={','.join(PACKAGES)}"]
    argv += [f"--dpkgopt=path-exclude={pattern}" for pattern in _EXCLUDED]
    if shutil.which("apt-config"):
        dump = subprocess.run(["apt-config", "dump"], capture_output=True, text=True, check=False).stdout
        argv += [f"--aptopt={line}" for line in apt_settings(dump)]
    argv += [
        # openjdk's maintainer script links a manual page, and fails where the excluded folder is missing.
        '--essential-hook=mkdir -p "$1"/usr/share/man/man1',
        # Host keys are made per run; this machine's settings for downloads do not belong into the image.
        '--customize-hook=rm -f "$1"/etc/ssh/ssh_host_* "$1"/etc/resolv.conf "$1"/etc/hostname',
        '--customize-hook=rm -f "$1"/etc/apt/apt.conf.d/99mmdebstrap',
        '--customize-hook=rm -f "$1"/etc/apt/sources.list "$1"/etc/apt/sources.list.d/*',
        '--customize-hook=mkdir -m 700 -p "$1"/root/.ssh',
    ]
    with tempfile.NamedTemporaryFile("w", prefix="harness-sources-", suffix=".list") as sources:
        argv += [SUITE, str(tar)]
        lines = apt_sources()
        if lines:
            sources.write("\n".join(lines) + "\n")
            sources.flush()
            argv.append(sources.name)
        os.chmod(sources.name, 0o644)  # apt drops its rights before it reads
        last = ""
        with (
            log.open("w") as copy,
            subprocess.Popen(
                argv,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                text=True,
                errors="replace",
            ) as made,
        ):
            assert made.stdout is not None
            try:
                for line in made.stdout:
                    copy.write(line)
                    if line.startswith(_STAGES):
                        say(f"image: {line[3:].strip()}")
                    if line.startswith(("E:", "Err:", "W: Failed")):
                        last = line.strip()
            except BaseException:
                with contextlib.suppress(ProcessLookupError):
                    made.terminate()
                raise
    if made.returncode != 0:
        raise InfraError(
            f"mmdebstrap could not make the node image: {last or f'exit code {made.returncode}'} (all in {log})"
        )


def require_tools(*tools: str) -> None:
    """Raises InfraError for a program that is missing on this machine."""
    for tool in tools:
        if not shutil.which(tool):
            raise InfraError(
                f"the node image needs {tool}, which is not installed: `apt-get install {tool}`, or `make setup`"
            )


def _last_line(text: str) -> str:
    lines = text.strip().splitlines()
    return lines[-1] if lines else "no output"
