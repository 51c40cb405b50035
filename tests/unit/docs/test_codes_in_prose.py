"""Every request, response and gRPC code that prose names is one, and is served where prose says so.

A number is taken for a code by where it stands: behind "code" or "request", in brackets of its own,
behind the name of a code, first in a cell of a table of codes, or bare in a sentence that speaks of
requests and answers. What stands there and is none is listed in NO_CODES, with what it is.
"""

import re
from collections.abc import Iterator
from functools import cache
from typing import Any, NamedTuple, cast

import pytest

from docs.site.compatibility_page import broker_table, name_service_table
from rockhopper.broker.kernel.processors.unserved import UNSERVED
from rockhopper.broker.replication.rocketmq.master.processors import ClassicProcessors
from rockhopper.protocol.codes import RequestCode, ResponseCode
from rockhopper.protocol.grpc_v2.codes import Code as GrpcCode
from tests.support.prose import ROOT, Line, Page, pages, sources

SERVED = {int(code) for code in (*broker_table(), *name_service_table())}
REQUESTS = {int(code) for code in RequestCode} | {code for row in UNSERVED for code in row.codes}
ANSWERS = {int(code) for code in ResponseCode} | {int(code) for code in GrpcCode}
NAMES = {
    name: {
        int(each[name])
        for each in (RequestCode, ResponseCode, GrpcCode)
        if name in each.__members__
    }
    for codes in (RequestCode, ResponseCode, GrpcCode)
    for name in codes.__members__
}
# Whose they are is in test_ports_in_prose.py.
PORTS = frozenset({8081, 9464, 9876, 10909, 10911, 10912})
NO_CODES = {
    ("docs/consumer-groups.md", 4): "queues that a client asks for",
    ("docs/operations/service.md", 200): "HTTP's",
    ("docs/pop.md", 100): "percent",
    ("docs/request-codes.md", 1970): "a year",
    ("docs/security.md", 640): "a mode of files",
    ("docs/security.md", 2750): "a mode of directories",
}

_LIST = r"\d+(?:(?:, and |, | and | or | to )\d+)*"
_REQUEST = re.compile(rf"\b[Rr]equests?(?: codes?)? ({_LIST})\b(?![\w%-]| [a-z]+s\b)")
_CODE = re.compile(rf"(?<!exit )(?<!Exit )\b[Cc]odes? ({_LIST})\b(?![\w%-])")
_ANSWER = re.compile(
    rf"\b(?:(?:refus\w+|answer\w*)(?: is)?(?: with)?(?: codes?)?|exception's text|finds nothing)"
    rf" \(?({_LIST})\b(?![\w%.,-]\w| [a-z])"
)
_BRACKETS = re.compile(rf"(?<=[\s*`])\(({_LIST})[;)]")
_SPOKEN_OF = re.compile(r"\b(?:[Rr]equests?|codes?|[Aa]nswer\w*|[Rr]efus\w*|[Ss]erve[sd]?)\b")
_UNIT = r"(?:[a-zµ]|%|[KMG]i?B\b|`?[A-Z])"
_BARE = re.compile(rf"(?<![\w.,/:%`=+<>#-])(\d{{2,6}})(?![\w%/-]|[.,:]\d| {_UNIT})")
_LONG = re.compile(r"(?<![\w.,/:%#=-])((?:40[0-5]|42[49]|50[0-6]|700|200[01])\d\d)(?![\w,%]|\.\d)")
# A setting, whose default follows it; test_settings_in_prose.py compares that.
_SETTING_BEFORE = re.compile(r"[`)\]] $|`\w+` times $")
_NAMED = re.compile(r"\b([A-Z][A-Z0-9]*(?:_[A-Z0-9]+)+|FIGURES)[`*]* \((\d+)\)")
_NAME_BEHIND = re.compile(r"(?<![\w.,])(\d+)[`*]*,? \(?`([A-Z][A-Z0-9_]+)`")
_SERVED = re.compile(rf"({_LIST})(?: besides)? (?:are|is)( not|) served\b")
_DOCSTRING = re.compile(r'^\s*(?:async )?def \w+\([^"]*?"""(\d+(?:, \d+)*):', re.MULTILINE)


class Named(NamedTuple):
    """A number that prose gives for a code, and which codes it may be."""

    line: Line
    number: int
    known: frozenset[int]


def numbers_of(listed: str) -> list[int]:
    """Every number of "36, 200 to 204 and 207"."""
    found: list[int] = []
    for part in re.split(r", and |, | and | or ", listed):
        first, _, last = part.partition(" to ")
        found += range(int(first), int(last or first) + 1)
    return found


def named_in(page: Page) -> Iterator[Named]:
    """The numbers of *page* that are codes by where they stand."""
    requests, either = frozenset(REQUESTS), frozenset(REQUESTS | ANSWERS)
    for line in page.sentences():
        text = line.text
        for found in _REQUEST.finditer(text):
            yield from (Named(line, each, requests) for each in numbers_of(found[1]))
        for found in _ANSWER.finditer(text):
            yield from (Named(line, each, frozenset(ANSWERS)) for each in numbers_of(found[1]))
        for pattern in (_CODE, _BRACKETS, _LONG):
            for found in pattern.finditer(text):
                if pattern is _BRACKETS and _SETTING_BEFORE.search(text[: found.start()]):
                    continue
                yield from (Named(line, each, either) for each in numbers_of(found[1]))
        if _SPOKEN_OF.search(text) and not text.startswith("rockhopper "):
            for found in _BARE.finditer(text):
                yield Named(line, int(found[1]), either)
    for table in page.tables():
        if table.heads[0] == "code" or page.name == "docs/compatibility.md":
            for number, cells in table.rows:
                begins = re.match(rf"`?({_LIST})\b(?!\w)", cells[0])
                if begins:
                    line = Line(page.name, number, cells[0])
                    yield from (Named(line, each, requests) for each in numbers_of(begins[1]))


@cache
def named() -> tuple[Named, ...]:
    """The same of all pages."""
    return tuple(each for page in pages() for each in named_in(page))


def test_a_number_that_stands_for_a_code_is_one() -> None:
    wrong = [
        f"{each.number}: {each.line}"
        for each in named()
        if each.number not in each.known | PORTS and (each.line.page, each.number) not in NO_CODES
    ]
    assert wrong == []


def test_the_rule_finds_codes_and_its_exceptions_are_needed() -> None:
    assert len(named()) > 150
    found = {(each.line.page, each.number) for each in named()}
    assert set(NO_CODES) - found == set()


@pytest.mark.parametrize(
    "text",
    [
        "It is asked by request 4711.",
        "Tools send it (request codes 10 and 4711).",
        "It is refused (4711).",
        "It is refused with code 4711.",
        "Others are refused with 10.",
        "A reset (4711) comes.",
        "It serves 28 and 4711.",
        "The proxy says 50099 there.",
        "| code | what |\n|---|---|\n| 4711 | a thing |",
    ],
)
def test_a_number_that_is_no_code_is_found(text: str) -> None:
    page = Page("docs/page.md", text)
    assert [each for each in named_in(page) if each.number not in each.known] or "with 10" in text
    assert list(named_in(page))


def test_a_code_has_the_name_that_stands_beside_it() -> None:
    """In pages and in the docstrings and comments of the code."""
    texts = {page.name: page.text for page in pages()}
    for path in sources(".py"):
        texts[path.relative_to(ROOT).as_posix()] = path.read_text(encoding="utf-8")
    pairs = [
        *(
            (at, name, number)
            for at, text in texts.items()
            for name, number in _NAMED.findall(text)
        ),
        *(
            (at, name, number)
            for at, text in texts.items()
            if at.endswith(".md")
            for number, name in _NAME_BEHIND.findall(text)
        ),
    ]
    known = [pair for pair in pairs if pair[1] in NAMES]
    assert len(known) > 15
    assert [pair for pair in known if int(pair[2]) not in NAMES[pair[1]]] == []


def served_claims(page: Page) -> Iterator[tuple[Line, int, bool]]:
    """The codes of which *page* says that they are served, or that they are not."""
    for line in page.sentences():
        for found in _SERVED.finditer(line.text):
            yield from ((line, each, not found[2]) for each in numbers_of(found[1]))


def test_codes_are_served_where_prose_says_so() -> None:
    master = ClassicProcessors(*cast(Any, (None, None, None, 0)))
    classic = set(master.rows(broker_table()))
    claims = [claim for page in pages() for claim in served_claims(page)]
    assert len(claims) > 20
    wrong = [
        f"{code} is {'not ' if is_served else ''}served: {line}"
        for line, code, is_served in claims
        if (code in SERVED) != is_served and not (code in classic and "haMode" in line.text)
    ]
    assert wrong == []


def test_a_processor_says_its_own_code() -> None:
    """``def recall(…): \"\"\"370: …``: what it begins with is a request code."""
    texts = [path.read_text("utf-8") for path in sources(".py")]
    begun = [
        int(code)
        for text in texts
        for codes in _DOCSTRING.findall(text)
        for code in codes.split(", ")
    ]
    assert len(begun) > 20
    assert set(begun) - {int(code) for code in RequestCode} == set()
