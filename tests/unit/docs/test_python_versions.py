"""Every Python version that prose names agrees with pyproject.toml and with what CI runs."""

import re
import tomllib
from typing import NamedTuple

import pytest

from tests.support.prose import ROOT, Page, pages, sources

PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
OLDEST = PROJECT["project"]["requires-python"].removeprefix(">=")
NAMED = [
    text.rpartition(" ")[2]
    for text in PROJECT["project"]["classifiers"]
    if re.fullmatch(r"Programming Language :: Python :: 3\.\d+", text)
]
RELEASES = (ROOT / "docs/releases.md").read_text(encoding="utf-8")
SUITES = re.findall(
    r'^SUITES = "(.*)"$', (ROOT / "tests/release/__main__.py").read_text("utf-8"), re.MULTILINE
)[0].split()
# The suites of Debian that a release is made and tried in: .ci/debian has each with its Python.
DEBIANS = {"3.11": "Debian 12", "3.13": "Debian 13", "3.14": "Debian's testing suite"}
SENTENCE = "Rockhopper needs CPython {oldest} or later; the tests run with {tested}"
# What a version of Python does, whichever of them we need.
ABOUT_PYTHON = (
    "CPython 3.13 and later ask of every certificate",
    "CPython 3.13 and later refuse certificates",
    "In Python 3.11 it swallows a cancellation",
    "generator is wrong on CPython 3.14",
)
_VERSION = re.compile(r"(?<![\w.])3\.\d{1,2}(?![\w.]*\d)")
# "needs Linux and CPython 3.13", "Python: 3.13 and up", "at least Python 3.12"
_NEEDED = re.compile(
    r"\b(?:[Nn]eed|[Rr]equire|[Aa]t least|[Oo]ldest)[^.;]{0,60}?C?Python:? (3\.\d+)(?!\d| or later)"
    r"|C?Python (3\.\d+) (?:is|are) (?:needed|required|enough|the oldest)"
)
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
    for version in re.findall(r"(3\.\d+) (?:or|and) (?:later|newer|above|upwards|up|higher)", text):
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
    needed = _NEEDED.search(text)
    return f"say {OLDEST} or later, not {needed[1] or needed[2]}" if needed else ""


def test_what_is_supported_is_one_span_that_begins_with_the_oldest() -> None:
    assert NAMED[0] == OLDEST
    assert [_minor(each) for each in NAMED] == list(range(_minor(OLDEST), _minor(NAMED[-1]) + 1))
    assert set(versions_in_ci()) <= set(NAMED)
    assert {OLDEST, NAMED[-1]} <= set(versions_in_ci())


def test_wheels_are_made_for_what_is_tested() -> None:
    workflow = (ROOT / ".github/workflows/release.yml").read_text(encoding="utf-8")
    assert "run: make release\n" in workflow
    debians = (ROOT / ".ci/debian").read_text(encoding="utf-8").partition("set -euo")[0]
    made = re.findall(r"CPython (3\.\d+)", debians)
    assert sorted(made, key=_minor) == versions_in_ci()
    assert all(suite in debians for suite in SUITES)


def test_each_mention_agrees() -> None:
    found = mentions()
    assert len(found) > 20
    assert [f"{fault}: {each.at}: {each.text}" for each in found if (fault := fault_of(each))] == []


def test_pages_that_say_what_is_tested_say_it_in_one_sentence() -> None:
    sentence = SENTENCE.format(oldest=OLDEST, tested=listed(versions_in_ci()))
    for name in ("docs/platforms.md", "docs/operations/limits.md"):
        text = " ".join((ROOT / name).read_text(encoding="utf-8").split())
        assert sentence in text, name


def faults_of_the_table(text: str) -> list[str]:
    """What the table of docs/releases.md says of a Python that is not so."""
    (table,) = [each for each in Page("releases", text).tables() if each.heads[0] == "CPython"]
    by_turns = [each for each in versions_in_ci() if each != OLDEST]
    wrong = []
    if [cells[0] for _, cells in table.rows] != NAMED:
        wrong.append(f"the rows are not {NAMED}")
    for _, (version, wheel, tests) in table.rows:
        where = DEBIANS.get(version, "")
        if (wheel == "yes") != bool(where):
            wrong.append(f"{version}: a release makes a wheel of it in {where}: {wheel}")
        if version not in versions_in_ci() and "not tested" not in tests:
            wrong.append(f"{version} is not tested: {tests}")
        if version in versions_in_ci() and ("not tested" in tests or where not in tests):
            wrong.append(f"{version} is tested in {where}: {tests}")
        turns = [each for each in by_turns if each != version] if version in by_turns else []
        if re.findall(r"in turn with (3\.\d+)", tests) != turns:
            wrong.append(f"{version} takes turns with {turns}: {tests}")
        others = set(re.findall(r"Debian(?: \d+|'s testing suite)", tests)) - {where}
        if others:
            wrong.append(f"{version} is in {where}: {tests}")
    return wrong


def test_a_release_is_tried_in_the_debians_that_have_these_pythons() -> None:
    told = " ".join((ROOT / ".ci/debian").read_text(encoding="utf-8").replace("\n#", " ").split())
    assert len(SUITES) == len(DEBIANS)
    for suite, (version, where) in zip(SUITES, DEBIANS.items(), strict=True):
        assert re.search(rf"\b{suite}\b.*{where}\b[^;.]*CPython {re.escape(version)}\b", told)


def test_the_table_of_pythons_is_what_a_release_does() -> None:
    assert faults_of_the_table(RELEASES) == []


@pytest.mark.parametrize(
    ("so", "not_so"),
    [
        ("each change; Debian 12", "each change; Debian 13"),
        ("| not tested", "| each change; Debian 12"),
        ("| 3.14 | yes |", "| 3.14 | no |"),
        ("only if the machine that builds the release has one", "yes"),
        ("in turn with 3.13", "in turn with 3.12"),
    ],
)
def test_another_table_of_pythons_is_found(so: str, not_so: str) -> None:
    assert so in RELEASES
    assert faults_of_the_table(RELEASES.replace(so, not_so, 1)) != []


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
        "It needs Linux and CPython 3.13.",
        "On Linux it requires Python 3.12, with headers.",
        "Python 3.12 and up will do.",
        "Python 3.13 is required.",
    ):
        assert fault_of(Mention("page", text, tuple(_VERSION.findall(text)))), text
