"""The text of our pages, for tests that compare it with the code.

Prose describes the project as it is now. Decisions and measured results are history, and stay as
they were written.
"""

import ast
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parents[2]
_HISTORY = (ROOT / "docs" / "decisions",)
_FENCE = re.compile(r"^\s*(```+|~~~+)\s*([\w+-]*)")
# A full stop ends a sentence if a capital, a backtick, a bracket or the end follows.
_SENTENCE_END = re.compile(r"(?<=[.!?])(?:[)*_\"]+)?\s+(?=[A-Z`\[(*\"])")
_ITEM = re.compile(r"^\s*(?:[-*+]|\d+\.)\s+|^#+\s+|^>\s*")

_AMOUNT = r"(\d[\d,]*(?:\.\d+)?(?: (?:s|ms|[KMG]iB|minutes?|hours?|days?))?)"
_SAID_TO_BE_DEFAULT = re.compile(
    rf"(?<![\w.:`-]){_AMOUNT}(?:,? by default| is the default|, the default)\b"
    rf"|\b(?:by default|[Tt]he default is|[Dd]efault:?) `?{_AMOUNT}(?![\w.:])"
)


class Line(NamedTuple):
    """A line or sentence of a page, and its position."""

    page: str
    number: int
    text: str

    def __str__(self) -> str:
        return f"{self.page}:{self.number}: {self.text}"


class Block(NamedTuple):
    """A fenced code block, or several lines with an indent of four."""

    page: str
    number: int
    language: str
    text: str


class Table(NamedTuple):
    """A table: its heads, and rows with as many cells."""

    page: str
    number: int
    heads: tuple[str, ...]
    rows: tuple[tuple[int, tuple[str, ...]], ...]


class Page(NamedTuple):
    """A page with its path from the root of the repository."""

    name: str
    text: str

    def lines(self) -> Iterator[Line]:
        """Yield every line, including code."""
        for number, text in enumerate(self.text.splitlines(), 1):
            yield Line(self.name, number, text)

    def prose(self) -> Iterator[Line]:
        """Yield the lines outside fenced code, including tables."""
        fence = ""
        for line in self.lines():
            found = _FENCE.match(line.text)
            if found and not fence:
                fence = found[1]
            elif found and line.text.strip().startswith(fence):
                fence = ""
            elif not fence:
                yield line

    def sentences(self) -> Iterator[Line]:
        """Yield the sentences of paragraphs and items, and the cells of tables, lines joined."""
        for paragraph in self._paragraphs():
            text = " ".join(line.text.strip() for line in paragraph)
            starts, at = [], 0
            for line in paragraph:
                starts.append((at, line.number))
                at += len(line.text.strip()) + 1
            at = 0
            for sentence in _SENTENCE_END.split(text):
                at = text.index(sentence, at)
                number = max(number for start, number in starts if start <= at)
                yield Line(self.name, number, sentence)
                at += len(sentence)
        for table in self.tables():
            for number, cells in table.rows:
                yield from (Line(self.name, number, cell) for cell in cells if cell)

    def _paragraphs(self) -> Iterator[list[Line]]:
        paragraph: list[Line] = []
        last = 0
        for line in self.prose():
            text = line.text
            is_apart = not text.strip() or text.lstrip().startswith("|")
            if paragraph and (is_apart or _ITEM.match(text) or line.number != last + 1):
                yield paragraph
                paragraph = []
            if not is_apart:
                paragraph.append(line)
            last = line.number
        if paragraph:
            yield paragraph

    def tables(self) -> Iterator[Table]:
        """Yield the tables with their cells as written."""
        found: list[Line] = []
        for line in (*self.prose(), Line(self.name, 0, "")):
            if line.text.lstrip().startswith("|"):
                found.append(line)
                continue
            if len(found) > 2:
                rows = tuple((row.number, _cells(row.text)) for row in found[2:])
                yield Table(self.name, found[0].number, _cells(found[0].text), rows)
            found = []

    def blocks(self) -> Iterator[Block]:
        """Yield the fenced blocks, and indented blocks after an empty line."""
        fence, language, begun, kept = "", "", 0, list[str]()
        indented: list[Line] = []
        previous = ""
        for line in (*self.lines(), Line(self.name, 0, "\n.")):
            found = _FENCE.match(line.text)
            if not fence and indented and not line.text.startswith("    ") and line.text.strip():
                yield Block(self.name, indented[0].number, "", _dedented(indented))
                indented = []
            if found and not fence:
                fence, language, begun, kept = found[1], found[2], line.number, []
            elif fence and line.text.strip().startswith(fence):
                yield Block(self.name, begun, language, "\n".join(kept))
                fence = ""
            elif fence:
                kept.append(line.text)
            elif indented or (line.text.startswith("    ") and not previous.strip()):
                indented.append(line)
            previous = line.text

    def quoted(self) -> Iterator[Line]:
        """Yield the text in backticks outside fenced code."""
        for line in self.prose():
            for text in re.findall(r"(?<!`)`([^`\n]+)`(?!`)", line.text):
                yield Line(self.name, line.number, text)


def _cells(row: str) -> tuple[str, ...]:
    inner = row.strip().removeprefix("|").removesuffix("|")
    return tuple(cell.strip().replace("\\|", "|") for cell in re.split(r"(?<!\\)\|", inner))


def _dedented(lines: list[Line]) -> str:
    return "\n".join(line.text[4:] for line in lines).strip()


def said_to_be_defaults(text: str) -> list[str]:
    """Find ``3 s is the default``, ``by default 3 s``, ``(default 16)``."""
    return [found[1] or found[2] for found in _SAID_TO_BE_DEFAULT.finditer(text)]


@cache
def pages() -> tuple[Page, ...]:
    """Return README.md and similar, docs/, READMEs below docker/ and tests/, the newest changes."""
    paths = [
        *(ROOT / name for name in ("README.md", "ARCHITECTURE.md", "CONTRIBUTING.md")),
        *sorted((ROOT / ".github").glob("*.md")),
        *sorted((ROOT / "docs").rglob("*.md")),
        *sorted((ROOT / "docker").rglob("*.md")),
        *sorted((ROOT / "tests").rglob("README.md")),
    ]
    found = (
        page(path)
        for path in paths
        if not is_installed(path) and not any(each in path.parents for each in _HISTORY)
    )
    return (*found, newest_changes(page(ROOT / "CHANGELOG.md")))


def is_installed(path: Path) -> bool:
    """Return whether *path* belongs to a package (npm's, a .venv's), or to a tool's cache."""
    _, *folders = path.relative_to(ROOT).parts
    return any(name == "node_modules" or name.startswith(".") for name in folders)


def newest_changes(changelog: Page) -> Page:
    """Return the newest part of the changelog; entries before the last release are history."""
    releases = [found.start() for found in re.finditer(r"^## \[\d", changelog.text, re.MULTILINE)]
    return changelog._replace(text=changelog.text[: releases[1] if len(releases) > 1 else None])


@cache
def sources(*suffixes: str) -> tuple[Path, ...]:
    """Return the files of the package that end with one of *suffixes*."""
    found = (ROOT / "rockhopper").rglob("*")
    return tuple(sorted(path for path in found if path.suffix in suffixes and path.is_file()))


class Code(NamedTuple):
    """The parts of the package's sources that tests compare with pages."""

    texts: tuple[tuple[Path, str], ...]
    """Every string, with its file; parts that were joined are joined."""
    names: frozenset[str]
    """Parameters, fields, functions, attributes and variables."""
    assigned: dict[str, set[str]]
    """Variable → the strings assigned to it."""
    joined: tuple[ast.BinOp, ...]
    """Every division: most of them join paths."""


@cache
def code() -> Code:
    """Parse the package's sources, once for all tests."""
    texts: list[tuple[Path, str]] = []
    names: set[str] = set()
    assigned: dict[str, set[str]] = {}
    joined: list[ast.BinOp] = []
    for path in sources(".py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            match node:
                case ast.Constant(value=str(text)):
                    texts.append((path, text))
                case ast.Attribute(attr=name) | ast.Name(id=name) | ast.keyword(arg=str(name)):
                    names.add(name)
                case ast.arg(arg=name) | ast.AnnAssign(target=ast.Name(id=name)):
                    names.add(name)
                case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name):
                    names.add(name)
                case ast.Assign(targets=[ast.Name(id=name)], value=ast.Constant(value=str(text))):
                    assigned.setdefault(name, set()).add(text)
                case ast.BinOp(op=ast.Div()):
                    joined.append(node)
    return Code(tuple(texts), frozenset(names), assigned, tuple(joined))


def page(path: Path) -> Page:
    """Return the page in the file *path*."""
    return Page(path.relative_to(ROOT).as_posix(), path.read_text(encoding="utf-8"))
