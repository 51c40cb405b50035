"""Every Python version that prose names agrees with pyproject.toml and with what CI runs."""

import re
import tomllib
from typing import NamedTuple

from tests.support.prose import ROOT, pages, sources

PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
OLDEST = PROJECT["project"]["requires-python"].removeprefix(">=")
NAMED = [
    text.rpartition(" ")[2]
    for text in PROJECT["project"]["classifiers"]
    if re.fullmatch(r"Programming Language :: Python :: 3\.\d+", text)
]
SENTENCE = "Rockhopper needs CPython {oldest} or later; the tests run with {tested}"
# What a version of Python does, whichever of them we need.
ABOUT_PYTHON = (
    "CPython 3.13 and later ask of every certificate",
    "CPython 3.13 and later refuse certificates",
    "In Python 3.11 it swallows a cancellation",
    "generator is wrong on CPython 3.14",
)
_VERSION = re.compile(r"(?<![\w.])3\.\d{1,2}(?![\w.]*\d)")
_SPOKEN_OF = re.compile(r"\bC?[Pp]ython\b|\bPYTHON")


class Mention(NamedTuple):
    """A sentence, or a line of a file that is no page, with versions of Python in it."""

    at: str
    text: str
    versions: tuple[str, ...]


def versions_in_ci() -> list[str]:
    """With what the tests run: CI's own Python, and those that it installs."""
    workflow = (ROOT / ".github/workflows/ci.yml").read_text(encoding="utf-8")
    others = (ROOT / ".ci/other-python").read_text(encoding="utf-8")
    found = re.findall(r'python-version: "(3\.\d+)"', workflow)
    found += re.findall(r"^#   \w+ +Debian.*CPython (3\.\d+)$", others, re.MULTILINE)
    return sorted(found, key=_minor)


def listed(versions: list[str]) -> str:
    """The versions as prose has them."""
    return f"{', '.join(versions[:-1])} and {versions[-1]}"


def _minor(version: str) -> int:
    return int(version.partition(".")[2])


def mentions() -> list[Mention]:
    """Where versions of Python are named."""
    texts = [(line.page, line.text) for page in pages() for line in page.sentences()]
    texts += [
        (block.page, line)
        for page in pages()
        for block in page.blocks()
        for line in block.text.splitlines()
    ]
    files = [
        ROOT / "Makefile",
        ROOT / "pyproject.toml",
        ROOT / "docs/example-project/pyproject.toml",
    ]
    for folder in ("docker", ".ci", ".github/workflows", "benchmarks"):
        files += [
            path
            for path in (ROOT / folder).rglob("*")
            if path.is_file()
            and ".build" not in path.parts  # what the benchmarks compile
            and path.suffix in {"", ".py", ".yml", ".yaml", ".sh", ".conf", ".Dockerfile"}
        ]
    for path in (*files, *sources(".py")):
        name = path.relative_to(ROOT).as_posix()
        texts += [(name, line) for line in path.read_text(encoding="utf-8").splitlines()]
    return [
        Mention(at, text, tuple(_VERSION.findall(text)))
        for at, text in texts
        if _SPOKEN_OF.search(text) and _VERSION.search(text)
    ]


def fault_of(mention: Mention) -> str:
    """What is wrong with a mention; empty if nothing is."""
    text = mention.text
    if any(each in text for each in ABOUT_PYTHON):
        return ""
    for version in mention.versions:
        if version not in NAMED:
            return f"{version} is not supported"
    for version in re.findall(r"(3\.\d+) (?:or|and) (?:later|newer|above|upwards)", text):
        if version != OLDEST:
            return f"{version} is not the oldest"
    for version in re.findall(r">= ?(3\.\d+)", text):
        if version != OLDEST:
            return f"{version} is not the oldest"
    for found in re.findall(r"with (?:CPython )?(3\.\d+(?:, 3\.\d+)* and 3\.\d+)", text):
        all_tested, others = (
            listed(versions_in_ci()),
            listed([each for each in versions_in_ci() if each != OLDEST]),
        )
        if found not in {all_tested, others}:
            return f"the tests run with {all_tested}"
    for version in re.findall(
        r"not (?:run )?with (3\.\d+)|(?<!\S)(3\.\d+) is [^.]*not tested", text
    ):
        if "".join(version) in versions_in_ci():
            return f"the tests run with {''.join(version)}"
    needed = re.search(r"\b[Nn]eeds? C?Python (3\.\d+)(?!\d| or later)", text)
    return f"say {needed[1]} or later" if needed else ""


def test_what_is_supported_is_one_span_that_begins_with_the_oldest() -> None:
    assert NAMED[0] == OLDEST
    assert [_minor(each) for each in NAMED] == list(range(_minor(OLDEST), _minor(NAMED[-1]) + 1))
    assert set(versions_in_ci()) <= set(NAMED)
    assert {OLDEST, NAMED[-1]} <= set(versions_in_ci())


def test_wheels_are_made_for_what_is_supported() -> None:
    workflow = (ROOT / ".github/workflows/release.yml").read_text(encoding="utf-8")
    made = set(re.findall(r"python: cp(3)(\d+)", workflow))
    assert {f"{major}.{minor}" for major, minor in made} == set(NAMED)


def test_each_mention_agrees() -> None:
    found = mentions()
    assert len(found) > 20
    assert [f"{fault}: {each.at}: {each.text}" for each in found if (fault := fault_of(each))] == []


def test_pages_that_say_what_is_tested_say_it_in_one_sentence() -> None:
    sentence = SENTENCE.format(oldest=OLDEST, tested=listed(versions_in_ci()))
    for name in ("docs/platforms.md", "docs/operations/limits.md"):
        text = " ".join((ROOT / name).read_text(encoding="utf-8").split())
        assert sentence in text, name


def test_the_lint_and_the_makefile_go_by_the_oldest() -> None:
    assert PROJECT["tool"]["ruff"]["target-version"] == f"py{OLDEST.replace('.', '')}"
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    assert f"sys.version_info < (3, {_minor(OLDEST)})" in makefile


def test_what_disagrees_is_found() -> None:
    for text in (
        "You need Python 3.10 or later.",
        "You need CPython 3.12 or later.",
        "It runs with CPython 3.11 and 3.12.",
        "It needs Python 3.11, and make.",
        "CPython is run with 3.11, and not with 3.13.",
    ):
        assert fault_of(Mention("page", text, tuple(_VERSION.findall(text)))), text
