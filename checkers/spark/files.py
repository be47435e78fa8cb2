# SPDX-License-Identifier: Apache-2.0
"""Input and output files: on a file system that every worker sees, or behind any URI that Hadoop supports.

A path without a scheme, or with `file:`, must exist on every machine of the cluster (one machine, NFS, a mounted
share). Workers open it directly, which is the fastest way. Spark reads anything else (`hdfs:`, `s3a:`, `viewfs:`, ...)
and passes it to the workers; the driver writes it. Credentials come only from Spark's own configuration
(`spark.hadoop.fs.s3a...`). A URI with a user or a password is rejected and not printed.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Protocol
from urllib.parse import unquote, urlsplit

from results.durable import replacing
from results.errors import HistoryError, StoreError, cannot_write

if TYPE_CHECKING:
    from pyspark import SparkContext

_SCHEME = re.compile(r"^([A-Za-z][A-Za-z0-9+.-]+):")


@dataclass(frozen=True, slots=True)
class Found:
    """A file. `path`: relative to the listed path, with slashes; empty if that is the file itself. `changed`: ms since
    1970.
    """

    path: str
    size: int
    changed: int


class Files(Protocol):
    """A file system, as the driver needs it."""

    shared: bool
    """Workers open its files themselves."""

    def listing(self, root: str) -> Iterator[Found]:
        """All files below a folder, or the file itself, in no order. Links to folders are not followed.

        Raises HistoryError if the path does not exist.
        """

    def read(self, path: str) -> bytes: ...

    def write(self, path: str, data: bytes) -> None:
        """Writes the file, whole or not at all. Raises StoreError."""

    def children(self, folder: str) -> list[str]:
        """Names of the files in a folder; empty if it does not exist."""


def reject_secrets(uri: str) -> None:
    """Raises HistoryError for `scheme://user:secret@...`, without repeating it."""
    if _SCHEME.match(uri) and "@" in urlsplit(uri).netloc:
        scheme = urlsplit(uri).scheme
        reason = "a URI must not contain a user or a password; put them into Spark's configuration"
        raise HistoryError(f"{scheme}://...", None, f"{reason} (spark.hadoop.fs.{scheme}...)")


def is_shared(uri: str) -> bool:
    """True for a path, or a `file:` URI."""
    scheme = _SCHEME.match(uri)
    return scheme is None or scheme[1].lower() == "file"


def as_path(uri: str) -> str:
    """The path that a shared URI means."""
    if _SCHEME.match(uri) is None:
        return uri
    parts = urlsplit(uri)
    if parts.netloc not in ("", "localhost"):
        raise HistoryError(uri, None, "a file: URI cannot name another machine; file:///path is right")
    return unquote(parts.path)


def files_for(uri: str, session: Callable[[], SparkContext]) -> Files:
    """The file system that `uri` is on. Only what Hadoop has to read waits for the session."""
    reject_secrets(uri)
    return SharedFiles() if is_shared(uri) else HadoopFiles(session())


class SharedFiles:
    """Plain paths."""

    shared = True

    def listing(self, root: str) -> Iterator[Found]:
        if os.path.isfile(root):
            yield _found("", root)
            return
        if not os.path.isdir(root):
            raise HistoryError(root, None, "no such file or folder")
        for here, _, names in os.walk(root):
            inner = os.path.relpath(here, root)
            for name in names:
                path = os.path.join(here, name)
                if os.path.isfile(path):
                    yield _found(name if inner == "." else f"{inner}/{name}".replace(os.sep, "/"), path)

    def read(self, path: str) -> bytes:
        try:
            return Path(path).read_bytes()
        except OSError as problem:
            raise HistoryError(path, None, f"cannot be read: {problem.strerror}") from None

    def write(self, path: str, data: bytes) -> None:
        target = Path(path)
        try:
            target.parent.mkdir(parents=True, exist_ok=True)
        except OSError as problem:
            raise cannot_write(target, "the verdict table", problem) from None
        with replacing(target, "the verdict table") as draft:
            draft.write(data)

    def children(self, folder: str) -> list[str]:
        return sorted(os.listdir(folder)) if os.path.isdir(folder) else []


def _found(relative: str, path: str) -> Found:
    about = os.stat(path)
    return Found(relative, about.st_size, about.st_mtime_ns // 1_000_000)


class HadoopFiles:
    """Any file system that the Java side of the session knows."""

    shared = False

    def __init__(self, context: SparkContext) -> None:
        self._jvm: Any = context._jvm
        self._conf = context._jsc.hadoopConfiguration()

    def listing(self, root: str) -> Iterator[Found]:
        with _describe(root, HistoryError):
            fs, path = self._at(root)
            base = fs.makeQualified(path).toUri().getPath().rstrip("/")
            files = fs.listFiles(path, True)
            while files.hasNext():
                file = files.next()
                inner = file.getPath().toUri().getPath()[len(base) :].lstrip("/")
                yield Found(inner, file.getLen(), file.getModificationTime())

    def read(self, path: str) -> bytes:
        with _describe(path, HistoryError):
            fs, at = self._at(path)
            stream = fs.open(at)
            try:
                return bytes(stream.readAllBytes())
            finally:
                stream.close()

    def write(self, path: str, data: bytes) -> None:
        # A rename is one step on a real file system; an object store makes a file visible when it is closed.
        with _describe(path, StoreError):
            fs, at = self._at(path)
            draft = self._jvm.org.apache.hadoop.fs.Path(at.getParent(), f"_{at.getName()}.tmp")
            stream = fs.create(draft, True)
            try:
                stream.write(bytearray(data))
            finally:
                stream.close()
            if not fs.rename(draft, at):
                raise StoreError(f"{path}: the verdict table cannot be written: the file could not be renamed")

    def children(self, folder: str) -> list[str]:
        with _describe(folder, HistoryError):
            fs, path = self._at(folder)
            if not fs.exists(path):
                return []
            return sorted(status.getPath().getName() for status in fs.listStatus(path) if status.isFile())

    def _at(self, uri: str) -> tuple[Any, Any]:
        path = self._jvm.org.apache.hadoop.fs.Path(uri)
        return path.getFileSystem(self._conf), path


_PACKAGES: Final = "spark.jars.packages brings it, for s3a: org.apache.hadoop:hadoop-aws of Spark's own Hadoop version"


@contextmanager
def _describe(uri: str, kind: type[HistoryError] | type[StoreError]) -> Iterator[None]:
    """Turns Java's exceptions into one of our errors, in one line: without a trace, which may hold a configuration."""
    from py4j.protocol import Py4JError, Py4JJavaError

    try:
        yield
    except Py4JError as problem:
        reason = str(problem)
        if isinstance(problem, Py4JJavaError):
            reason = str(problem.java_exception.toString())
        reason = reason.removeprefix("java.io.").splitlines()[0]
        if "ClassNotFoundException" in reason or "UnsupportedFileSystemException" in reason:
            scheme = urlsplit(uri).scheme
            reason = f"this Spark has no file system for {scheme}:, its jar is missing ({_PACKAGES})"
        if kind is HistoryError:
            raise HistoryError(uri, None, reason) from None
        raise StoreError(f"{uri}: cannot be written: {reason}") from None


def join(root: str, *parts: str) -> str:
    """A path or URI below another."""
    return "/".join([root.rstrip("/") or root, *(part for part in parts if part)])
