# SPDX-License-Identifier: Apache-2.0
"""The folders of the harness on an existing machine: claimed for one run, filled with shares, released.

All files of the harness on a host are in `ROOTS`, and a marker file in each contains the run's id. A folder of another
owner is rejected and never changed.
"""

from __future__ import annotations

import hashlib
import posixpath
from collections.abc import Sequence
from typing import Final

from infra.machines.api import CommandFailed, InfraError, Share
from infra.machines.node import PROCESS_OF, RemoteNode
from infra.machines.primitives import control_groups
from infra.machines.primitives.clock import FORGET_DEAD
from infra.machines.primitives.network import TABLE_PREFIX
from infra.machines.primitives.packets import SWEEP

ROOTS: Final = ("/opt/harness", "/var/lib/harness")
"""The harness' folders on a host: programs (shares), and the servers' files."""

IMAGES: Final = "/var/lib/harness/images"
"""Images of file systems that faults need."""

MARKER: Final = ".rocketmq-harness"
"""The file that marks a folder as the harness'; it holds the run's id."""

# Arguments: marker, run id, folders. All are looked at before one is touched; the marker is made with noclobber, so of
# two runs that come at once only one gets the host. It prints the owner of each folder when it refuses.
# A file system of its own may be mounted there: what mkfs puts into it is nobody's.
_CLAIM = """
marker=$1 run=$2
shift 2
for root; do
    if [ -e "$root/$marker" ]; then
        owner=$(cat -- "$root/$marker")
        [ "$owner" = "$run" ] || { echo "run $owner $root"; exit 1; }
    elif [ -L "$root" ] || { [ -e "$root" ] && [ -n "$(ls -A --ignore=lost+found -- "$root" 2>&1)" ]; }; then
        echo "foreign $root"
        exit 1
    fi
done
for root; do
    mkdir -p -- "$root" || exit 1
    (set -C; printf '%s\\n' "$run" > "$root/$marker") 2>/dev/null && continue
    owner=$(cat -- "$root/$marker")
    [ "$owner" = "$run" ] || { echo "run $owner $root"; exit 1; }
done
"""

# Arguments: marker, run id, prefix of our tables, folders. Touches only folders that this run has marked, and the
# guards of this run's leases (infra.machines.lease), which carry its id: one that is left may start a server when it
# ends.
_RELEASE = (
    PROCESS_OF
    + SWEEP
    + """
marker=$1 run=$2 prefix=$3
shift 3
for process in /proc/[0-9]*; do
    grep -zqxF -- "lease:$run" "$process/cmdline" 2>/dev/null || continue
    commands=$(cat "$process"/task/*/children 2>/dev/null)     # each `timeout` leads a process group of its own
    kill -s KILL -- "${process#/proc/}" 2>/dev/null
    for command in $commands; do kill -s KILL -- "-$command" 2>/dev/null; done
done
ours=
for root; do
    [ "$(cat -- "$root/$marker" 2>/dev/null)" = "$run" ] || continue
    ours=yes
    find "$root" -name '*.pid' -type f -exec cat {} + | while read -r pid started; do
        # Each is the leader of a session of its own (RemoteNode.spawn), hence of a process group: all of it goes.
        [ -n "$started" ] && [ "$(started_of "$pid")" = "$started" ] && kill -s KILL -- "-$pid"
    done
done
[ -n "$ours" ] || exit 0
"""
    + FORGET_DEAD
    + """
sweep_packets "$prefix"
# Frozen file systems cannot be unmounted; an image's loop device goes with the last mount (autoclear).
while read -r device place _; do
    for root; do
        case $place in
            "$root"/*)
                fsfreeze -u "$place" 2>/dev/null
                umount "$place" || umount -l "$place"
                losetup -d "$device" 2>/dev/null
                ;;
        esac
    done
done < /proc/mounts
for root; do
    [ "$(cat -- "$root/$marker" 2>/dev/null)" = "$run" ] || continue
    # A killed server may still be closing its files: the second attempt finds what the first one missed. The marker
    # goes last, so that a release that failed half-way can be repeated; a mount point stays.
    for pause in 0.2 0; do
        find "$root" -xdev -mindepth 1 ! -path "$root/$marker" ! -path "$root/lost+found" -delete 2>/dev/null && break
        sleep "$pause"
    done
    left=$(ls -A --ignore=lost+found --ignore="$marker" -- "$root") || exit 1
    [ -z "$left" ] || { echo "cannot remove $root/$left" >&2; exit 1; }
    rm -f -- "$root/$marker"
    mountpoint -q -- "$root" || rmdir -- "$root" || exit 1
done
"""
)

_SUMS = r"""[ -d "$1" ] || exit 0; cd -- "$1" && find . -type f ! -name "$2" -exec sha256sum -z {} +"""


def claim(node: RemoteNode, run_id: str) -> None:
    """Claims the folders. Raises InfraError if one belongs to another run, or is not the harness'."""
    done = node.run(["sh", "-c", _CLAIM, "claim", MARKER, run_id, *ROOTS], check=False)
    if done.code == 0:
        return
    match done.text.split():
        case ["run", other, folder]:
            raise InfraError(
                f"{node.name}: {folder} on {node.remote.where} belongs to run {other}; if that one is dead: "
                f"`harness clean` where it was started, or remove {' and '.join(ROOTS)} there"
            )
        case ["foreign", folder]:
            raise InfraError(
                f"{node.name}: {folder} on {node.remote.where} exists and is not the harness's; move it away first"
            )
        case _:
            raise CommandFailed(node.name, done)


def release(node: RemoteNode, run_id: str) -> None:
    """Ends the run's processes on the host, and removes its folders, packet rules, control groups. Repeatable."""
    # A held lease may start a server when it ends: that has to be over before the servers are ended.
    try:
        node.heal_leases()
    finally:
        node.run(["sh", "-c", _RELEASE, "release", MARKER, run_id, TABLE_PREFIX, *ROOTS], timeout_s=120)
        node.run(control_groups.clean_argv(run_id))


def copy(node: RemoteNode, shares: Sequence[Share]) -> None:
    for share in shares:
        _copy_one(node, share)


def _copy_one(node: RemoteNode, share: Share) -> None:
    """Makes the share's folder on the host like its source: sends differences (SHA-256), and removes extra files."""
    output = node.run(["sh", "-c", _SUMS, "sums", share.path, MARKER]).stdout.decode("utf-8", "surrogateescape")
    there = {
        name.removeprefix("./"): digest for digest, _, name in (e.partition("  ") for e in output.split("\0") if e)
    }
    here = {str(path.relative_to(share.source)): path for path in sorted(share.source.rglob("*")) if path.is_file()}
    for name, path in here.items():
        data = path.read_bytes()
        if there.get(name) != hashlib.sha256(data).hexdigest():
            node.write(posixpath.join(share.path, name), data, mode=0o755 if path.stat().st_mode & 0o100 else 0o644)
    for name in there.keys() - here.keys():
        node.run(["rm", "-f", "--", posixpath.join(share.path, name)])
    node.run(["mkdir", "-p", "--", share.path])  # an empty folder is a share too


def check_share(share: Share) -> None:
    """Raises InfraError if the share has no source, or would be outside of the harness' folders."""
    if not share.source.is_dir():
        raise InfraError(f"the folder {share.source}, to be shared with the nodes, does not exist")
    plain = posixpath.normpath(share.path)
    if plain != share.path or not any(plain.startswith(f"{root}/") for root in ROOTS):
        raise InfraError(
            f"a share at {share.path!r} would lie outside of {' and '.join(ROOTS)}, the folders of the harness"
        )
