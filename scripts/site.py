# SPDX-License-Identifier: Apache-2.0
"""Hooks of mkdocs (`mkdocs.yml`): files of the repository that pages link to, but that are not below docs/.

The pages of the findings get an index. A fence such as "```console cluster varies" (our tests read the words behind the
language) becomes "```console".

A page that links to `../CHANGELOG.md` links to `repo/CHANGELOG.md` on the site. Markdown files become pages, other
files are copied. In such a page, links to files that the site does not have become plain text.
"""

from __future__ import annotations

import posixpath
import re
from pathlib import Path
from typing import Any, Final

ROOT: Final = Path(__file__).parents[1]
FOLDER: Final = "repo"

_LINK: Final = re.compile(r"(?<!!)\[((?:[^\[\]]|\[[^\[\]]*\])*)\]\(([^)#\s]+)(#[^)\s]*)?\)")
_FENCE: Final = re.compile(r"^(```\w+) .*$", re.MULTILINE)
_CODE: Final = re.compile(r"^```.*?^```", re.MULTILINE | re.DOTALL)


def outside(docs: Path) -> list[str]:
    """Paths in the repository of the files outside of docs/ that pages link to."""
    found = set()
    for page in docs.rglob("*.md"):
        for _, target, _ in _LINK.findall(_CODE.sub("", page.read_text(encoding="utf-8"))):
            path = _resolved(page.relative_to(ROOT).parent.as_posix(), target)
            if path and not path.startswith("docs/") and (ROOT / path).is_file():
                found.add(path)
    return sorted(found)


def rewritten(markdown: str, place: str, known: list[str]) -> str:
    """A page with its links to other files of the repository as the site has them. place: its path on the site.
    known: the paths in the repository that the site has below `repo/`.
    """
    inside = place.startswith(f"{FOLDER}/")
    source = posixpath.dirname(place.removeprefix(f"{FOLDER}/") if inside else f"docs/{place}")

    def replaced(match: re.Match[str]) -> str:
        text, target, anchor = match[1], match[2], match[3] or ""
        path = _resolved(source, target)
        if path is None:
            return match[0]
        if path.startswith("docs/"):
            there = path.removeprefix("docs/") + ("/index.md" if (ROOT / path).is_dir() else "")
        elif path in known:
            there = f"{FOLDER}/{path}"
        else:
            return text if inside else match[0]
        return f"[{text}]({posixpath.relpath(there, posixpath.dirname(place) or '.')}{anchor})"

    markdown = _FENCE.sub(r"\1", markdown)
    return "".join(
        part if part.startswith("```") else _LINK.sub(replaced, part)
        for part in re.split(r"(^```.*?^```)", markdown, flags=re.MULTILINE | re.DOTALL)
    )


def index_of_findings(folder: Path) -> str:
    """A page with a link to each finding."""
    lines = ["# Findings", "", "Each page has the cause, the rate, a control, and what to do meanwhile.", ""]
    for path in sorted(folder.glob("[0-9]*.md")):
        title = next(line for line in path.read_text(encoding="utf-8").splitlines() if line.startswith("# "))
        number, _, name = title.removeprefix("# ").partition(". ")
        lines.append(f"- [{number}: {name}]({path.name})")
    return "\n".join(lines) + "\n"


def _resolved(folder: str, target: str) -> str | None:
    """The path of a link's target in the repository; None for an address, an anchor, or a path outside of it."""
    if not target or re.match(r"[a-z]+:", target) or target.startswith("/"):
        return None
    path = posixpath.normpath(posixpath.join(folder, target))
    return None if path.startswith("..") else path


def on_files(files: Any, config: Any) -> Any:
    from mkdocs.structure.files import File

    for path in outside(Path(config.docs_dir)):
        files.append(File.generated(config, f"{FOLDER}/{path}", abs_src_path=str(ROOT / path)))
    index = index_of_findings(Path(config.docs_dir) / "findings")
    files.append(File.generated(config, "findings/index.md", content=index))
    return files


def on_page_markdown(markdown: str, page: Any, config: Any, files: Any) -> str:
    known = [file.src_uri.removeprefix(f"{FOLDER}/") for file in files if file.src_uri.startswith(f"{FOLDER}/")]
    return rewritten(markdown, page.file.src_uri, known)
