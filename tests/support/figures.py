"""The figures in our pages, and the values that they must match: ``docs/site/figures.toml``.

A figure is a number with a unit, or with a counted thing. For the words around a figure, the table
names its source:

    ["docs/consumer-groups.md"]
    "or 120 s pass" = "rockhopper.broker.kernel.members.consumer_groups:HEARTBEAT_TIMEOUT_MS"

==================================  ===========================================================
``rockhopper.….module:NAME``        a constant
``setting KEY``                     the default of a setting; ``setting KEY most``: its maximum
``parameter module:function name``  the default of a parameter
``result FILE how path``            a kept result: ``only``, ``median``, ``max``, ``min`` or
                                    ``sum`` of the values at a path of its JSON, ``*`` for each
``file PATH: words``                these words of a file have the number
``… * 2``, ``… plus …``             a multiple of any of these; a sum
``lines PATTERN``                   the number of lines of the files
``length module:function``          the length of its result
``count FILE name``                 the length of a list in a JSON file
``outside: …``                      not ours: the words name the origin
``plain: …``                        promises nothing: the words say why
==================================  ===========================================================

Units are compared as well. The unit of a constant is the end of its name: ``HEARTBEAT_TIMEOUT_MS =
120_000`` agrees with *120 s*. A measured value agrees if it gives the figure when rounded to its
digits.
"""

import inspect
import json
import operator
import re
import statistics
from collections.abc import Callable, Iterator
from fractions import Fraction
from importlib import import_module
from itertools import chain
from pathlib import Path
from typing import Any, NamedTuple

from docs.site.settings_page import GROUPS
from rockhopper.broker.settings.setting_fields import settings_of
from tests.support.features import NAMES
from tests.support.prose import Page

ROOT = Path(__file__).parents[2]
_WORDS = {
    "half": Fraction(1, 2),
    **dict.fromkeys(("a", "an", "one"), Fraction(1)),
    "two": Fraction(2),
    "three": Fraction(3),
    "four": Fraction(4),
    "five": Fraction(5),
    "six": Fraction(6),
    "seven": Fraction(7),
    "eight": Fraction(8),
    "nine": Fraction(9),
    "ten": Fraction(10),
    "twelve": Fraction(12),
    "twenty": Fraction(20),
    "thirty": Fraction(30),
}
_SECONDS = {"µs": "1/1000000", "ms": "1/1000", "s": "1", "second": "1", "min": "60", "minute": "60"}
_SECONDS |= {"h": "3600", "hour": "3600", "day": "86400", "week": "604800"}
_BYTES = {"byte": 1, "KB": 1000, "kB": 1000, "MB": 10**6, "GB": 10**9, "TB": 10**12}
_BYTES |= {"KiB": 1 << 10, "MiB": 1 << 20, "GiB": 1 << 30}
SCALES = {unit: Fraction(value) for unit, value in (_SECONDS | _BYTES).items()}
SCALES |= {"%": Fraction(1, 100), "million": Fraction(10**6), "times": Fraction(1)}
# The end of a name gives its unit.
_ENDS = {"NS": "1/1000000000", "US": "1/1000000", "MS": "1/1000", "S": "1"}
_ENDS |= {
    "SEC": "1",
    "MINUTES": "60",
    "HOURS": "3600",
    "DAY": "86400",
    "DAYS": "86400",
    "SECONDS": "1",
}
_ENDS |= {"KB": "1000", "MB": "1000000", "GB": "1000000000"}
_COUNTED = (
    "message|request|character|queue|topic|group|connection|call|stream|frame|broker|replica|thread|kill"
    "|expression|table|file|propert|line|entr|record|attempt|member|level|offset|key|value|send|user|core"
    "|literal|name|lock|user|job|process|place|client|consumer|producer|one|deep|handshake|test|slot"
    "|epoch|field"
)
_NUMBER = r"(?<![\w.,:/+#-])(?<!RocketMQ\ )(?!0\d)\d[\d,]*(?:\.\d+)?(?<!,)"
_TIME = r"(?:µs|ms|s|seconds?|min|minutes?|h|hours?|days?|weeks?)"
_SIZE = r"(?:bytes?|[KMG]i?B|kB|TB)"
_BOUNDS = ("at most", "at least", "up to", "more than", "fewer than", "the first", "the last")
_AFTER_BOUND = "|".join(rf"(?<={re.escape(words)}\ )" for words in _BOUNDS)
_FIGURE = re.compile(
    rf"(?P<number>{_NUMBER})(?:\s|-)?(?P<unit>{_TIME}|{_SIZE}|%|million|times|per\ cent)(?![\w])"
    rf"|(?P<low>{_NUMBER})(?=\ (?:to|or)\ {_NUMBER}(?:\s|-)?(?P<low_unit>{_TIME}|{_SIZE}|%)(?!\w))"
    rf"|(?P<counted>{_NUMBER})(?=\s(?:[\w-]+\s){{0,2}}?(?:{_COUNTED})(?:s|es|y|ies)?\b)"
    r"|(?P<large>(?<![\w.,:/+#-])\d{1,3}(?:,\d{3})+(?![\d\w]))"
    rf"|(?:{_AFTER_BOUND})(?P<bounded>\d[\d,]*(?<!,))(?!\.\d|\w)"
    rf"|(?P<word>\b(?:half\ an?|{'|'.join(set(_WORDS) - {'a', 'an'})})"
    r"|(?<=\bafter\ )an?|(?<=\bwithin\ )an?|(?<=\bFor\ )an?|(?<=\bfor\ )an?"
    r"|(?<=\bthan\ )an?|(?<=\bleast\ )an?)"
    r"\ (?P<word_unit>seconds?|minutes?|hours?|days?|weeks?)\b",
    re.VERBOSE,
)
# In indented blocks most numbers are arguments or program output, so only these forms count.
_IN_WORDS = re.compile(
    rf"\b(?:[1-9][\d,]*|{'|'.join(set(_WORDS) - {'a', 'an', 'one'})})"
    r" (?:bytes|[KMG]iB|seconds?|minutes?|hours?|days?)\b"
    r"|\s\s\d+,\d{3}\ "
)
# Text that a program writes between two comments; a separate test compares it.
_MADE = re.compile(
    r"<!-- figures of .*?<!-- end of figures -->"
    r"|<!-- Made by .*?(?:<!-- By hand from here. -->|\Z)",
    re.DOTALL,
)
_MADE_PAGE = "<!-- Made by `make pages`"
_SMALL = 4  # Prose counts fewer things than this without a limit: "two groups".
_OPERATION = re.compile(r" ([*/+-]) (\d+)$")
_FEATURE = re.compile(r"rockhopper\.broker\.features\.(\w+)")
_SHOWN = ("number", "low", "counted", "large", "bounded")
_CODE = re.compile(r"\d{5,}")
_OPERATORS: dict[str, Callable[[Any, Any], Any]] = {
    "*": operator.mul,
    "/": operator.truediv,
    "+": operator.add,
    "-": operator.sub,
}


class Figure(NamedTuple):
    """A number on a page: position, value in seconds, bytes or pieces, and precision."""

    begin: int
    end: int
    text: str
    value: Fraction
    precision: Fraction
    unit: str


class Value(NamedTuple):
    """The value of a source, in the base of its unit; *is_exact* if it is not measured."""

    value: Fraction
    is_exact: bool


def text_of(page: Page) -> str:
    """Return the prose of *page* in one line.

    Code, comments, generated figures and targets of links are left out. From an indented block, the
    lines with a figure in words remain, such as formulas and remarks.
    """
    inside = {
        block.number + offset
        for block in page.blocks()
        if not block.language
        for offset in range(block.text.count("\n") + 1)
    }
    descriptions = _descriptions(page)
    lines = (
        line.text
        for line in page.prose()
        if line.number not in inside or _IN_WORDS.search(line.text)
    )
    text = _MADE.sub(lambda _: descriptions, "\n".join(lines))
    text = re.sub(r"<!--.*?-->|<[^>\n]{1,80}>|\]\([^)]*\)", _without_target, text)
    return " ".join(text.split())


def is_made(page: Page) -> bool:
    """Return whether ``make pages`` generates the page, or a part of it."""
    return _MADE_PAGE in page.text


def _descriptions(page: Page) -> str:
    """Return the last cells of tables from ``make pages``; the other cells are values."""
    if not is_made(page):
        return ""
    begin = page.text.count("\n", 0, page.text.index(_MADE_PAGE))
    tables = (table for table in page.tables() if table.number > begin)
    cells = [row[-1] for table in tables for _, row in table.rows]
    return "\n\n".join(cells)


def _without_target(found: re.Match[str]) -> str:
    return "]" if found[0].startswith("]") else ""


def figures(text: str) -> Iterator[Figure]:
    """Yield the figures of a text; text in backticks is code."""
    outside = re.sub(r"`[^`]*`", lambda found: "`" * len(found[0]), text)
    for found in _FIGURE.finditer(outside):
        unit = (found["unit"] or found["low_unit"] or found["word_unit"] or "").replace(
            "per cent", "%"
        )
        if unit not in SCALES:
            unit = unit.removesuffix("s")
        scale = SCALES.get(unit, Fraction(1))
        begin = found.start()
        if found["word"]:
            number = _WORDS[found["word"].split()[0]]
            precision = Fraction(1)
        else:
            part = next(name for name in _SHOWN if found[name])
            begin, shown = found.start(part), found[part].replace(",", "")
            number, precision = Fraction(shown), _precision(shown)
        if not unit and (number < _SMALL or _CODE.fullmatch(found[0])):
            continue
        end = found.end()
        yield Figure(begin, end, outside[begin:end], number * scale, precision * scale, unit)


def _precision(shown: str) -> Fraction:
    whole, _, parts = shown.partition(".")
    if parts:
        return Fraction(1, 10 ** len(parts))
    return Fraction(10) ** (len(whole) - len(whole.rstrip("0")) if whole.strip("0") else 0)


def agrees(figure: Figure, found: Value) -> bool:
    """Return whether a figure on a page matches its source."""
    if found.is_exact and "." not in figure.text:
        # A setting in percent is a whole number.
        return figure.value == found.value or (
            figure.unit == "%" and figure.value == found.value / 100
        )
    return abs(figure.value - found.value) <= figure.precision / 2


def value_of(source: str) -> Value | None:
    """Return the value of *source*; None if it is not ours, or promises nothing.

    Raises ValueError if the source does not exist.
    """
    if " plus " in source:
        parts = [value_of(part) for part in source.split(" plus ")]
        values = [part.value for part in parts if part is not None]
        is_exact = all(part.is_exact for part in parts if part is not None)
        return Value(sum(values, Fraction(0)), is_exact)
    if operation := _OPERATION.search(source):
        sign, by = operation.groups()
        value = value_of(source[: operation.start()])
        return value and value._replace(value=Fraction(_OPERATORS[sign](value.value, Fraction(by))))
    kind, _, rest = source.partition(" ")
    if kind in ("outside:", "plain:") and rest.strip():
        return None
    feature = _FEATURE.match(kind)
    if feature and feature[1] not in NAMES:
        return None
    try:
        if kind == "setting":
            return Value(_setting(*rest.split()), is_exact=True)
        if kind == "parameter":
            return Value(_parameter(*rest.split()), is_exact=True)
        if kind == "result":
            return Value(_result(*rest.split(" ", 2)), is_exact=False)
        if kind == "lines":
            files = [path for path in ROOT.glob(rest) if path.is_file()]
            if not files:
                raise LookupError("there is no such file")
            lines = sum(len(path.read_text().splitlines()) for path in files)
            return Value(Fraction(lines), is_exact=False)
        if kind == "length":
            module, _, name = rest.partition(":")
            return Value(Fraction(len(getattr(import_module(module), name)())), is_exact=True)
        if kind == "count":
            path, name = rest.split()
            return Value(Fraction(len(json.loads((ROOT / path).read_text())[name])), is_exact=True)
        if re.fullmatch(r"[\w.]+:[\w.]+", kind):
            return Value(_constant(kind), is_exact=True)
    except (ImportError, AttributeError, LookupError, OSError, TypeError) as error:
        raise ValueError(f"{source}: {error!r}") from error
    raise ValueError(f"{source}: no source begins so; see {Path(__file__).name}")


def file_has(source: str, figure: Figure) -> bool:
    """Return whether the words of a ``file`` source exist, and contain the figure."""
    path, _, words = source.removeprefix("file ").partition(": ")
    if words not in " ".join((ROOT / path).read_text().split()):
        return False
    numbers = re.findall(r"\d[\d_,]*(?:\.\d+)?", words)
    values = [Fraction(number.replace(",", "").replace("_", "")) for number in numbers]
    scale = SCALES.get(figure.unit, Fraction(1))
    return bool({figure.value, figure.value / scale, figure.value * 1000} & {*values})


def _unit_end(name: str) -> Fraction:
    parts = re.sub(r"_(MAX|MIN|ALL|AT_FIRST|EACH)$", "", name.upper()).split("_")
    return Fraction(_ENDS.get(parts[-1], 1))


def _constant(place: str) -> Fraction:
    module, _, name = place.partition(":")
    found: Any = import_module(module)
    for part in name.split("."):
        found = found[int(part)] if part.isdigit() else getattr(found, part)
    return Fraction(str(found)) * _unit_end(re.sub(r"\.\d+$", "", name))


def _setting(key: str, which: str = "default") -> Fraction:
    for config in chain.from_iterable(GROUPS.values()):
        for field, known in settings_of(config):
            if known.key == key:
                value = field.default if which == "default" else known.most
                return Fraction(str(value)) * _unit_end(field.name)
    raise LookupError("no such setting")


def _parameter(place: str, name: str) -> Fraction:
    module, _, path = place.partition(":")
    found: Any = import_module(module)
    for part in path.split("."):
        found = getattr(found, part)
    default = inspect.signature(found).parameters[name].default
    return Fraction(str(default)) * _unit_end(name)


def _result(file: str, how: str, path: str) -> Fraction:
    found = [json.loads((ROOT / file).read_text())]
    names = path.split("/")
    for name in names:
        if name == "*":
            items = (one.values() if isinstance(one, dict) else one for one in found)
            found = [*chain.from_iterable(items)]
        else:
            found = [
                one[int(name)] if isinstance(one, list) else one[name]
                for one in found
                if isinstance(one, list) or name in one
            ]
    ways: dict[str, Callable[[list[Any]], Any]] = {
        "median": statistics.median,
        "max": max,
        "min": min,
        "sum": sum,
        "only": operator.itemgetter(0),
    }
    if not found:
        raise LookupError("nothing is there")
    scale = next((end for name in reversed(names) if (end := _unit_end(name)) != 1), Fraction(1))
    return Fraction(str(ways[how](found))) * scale
