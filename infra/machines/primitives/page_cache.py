# SPDX-License-Identifier: Apache-2.0
"""The page cache: measures and drops the cached part of a node's files."""

from __future__ import annotations

from collections.abc import Sequence

from infra.machines.api import Node

# Per file, so that only this node's pages go (/proc/sys/vm/drop_caches empties the whole machine's). dd's manual names
# this very use: `oflag=nocache` with `count=0` advises POSIX_FADV_DONTNEED for the whole file; fdatasync comes first,
# for dirty pages cannot be dropped.
_DROP_CACHE = """
for dir; do
    [ -d "$dir" ] || continue
    find "$dir" -type f -exec sh -c '
        for file; do
            dd of="$file" oflag=nocache conv=notrunc,nocreat,fdatasync count=0 status=none || [ ! -e "$file" ] || exit 1
        done' drop {} + || exit 1
done
"""

_CACHED = """
command -v fincore > /dev/null || { echo "no program fincore (Debian: util-linux-extra, or util-linux)" >&2; exit 127; }
for dir; do
    [ -d "$dir" ] || continue
    find "$dir" -type f -size +0c -exec fincore --bytes --noheadings --raw --output RES {} + 2>/dev/null
done
exit 0
"""


def drop_file_cache(node: Node, dirs: Sequence[str]) -> None:
    """Writes the folders' files to disk and drops their pages from the page cache, file by file; sub-folders too.

    Pages that a running process has mapped stay. No data is lost: the next reader only reads from the disk again.
    """
    if dirs:
        node.run(["sh", "-c", _DROP_CACHE, "drop-cache", *dirs], timeout_s=120)


def cached_bytes(node: Node, dirs: Sequence[str]) -> int:
    """Bytes of the folders' files that are in the page cache, by fincore (package util-linux-extra on Debian 12)."""
    if not dirs:
        return 0
    return sum(int(line) for line in node.run(["sh", "-c", _CACHED, "cached", *dirs], timeout_s=60).text.split())
