"""The compiled modules that the security policy names are those that are built."""

import re
import tomllib

from tests.support.prose import ROOT, Page, page, pages

PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
MODULES = {
    each["name"].removeprefix("rockhopper.")
    for each in PROJECT["tool"]["setuptools"]["ext-modules"]
}
POLICY = page(ROOT / ".github/SECURITY.md")
NUMBERS = dict(
    zip(
        ["four", "five", "six", "seven", "eight", "nine", "ten", "eleven"],
        range(4, 12),
        strict=True,
    )
)


def faults(of: Page) -> list[str]:
    """What *of* says of the compiled modules that is not so."""
    text = " ".join(of.text.split())
    wrong = [
        f"{of.name}: there are {len(MODULES)}: {word}"
        for word in re.findall(r"\b(\w+) (?:extension|compiled|C) modules\b", text)
        if NUMBERS.get(word.lower(), len(MODULES)) != len(MODULES)
    ]
    for table in of.tables():
        names = [
            re.findall(r"`((?:broker|client|protocol)[\w.]*\._\w+)`", cells[0])
            for _, cells in table.rows
        ]
        named = [name for each in names for name in each]
        if named and set(named) != MODULES:
            wrong.append(f"{of.name}: {sorted(set(named) ^ MODULES)}")
    return wrong


def test_the_compiled_modules_are_those_that_are_built() -> None:
    assert re.search(r"`protocol\._framing`", POLICY.text)
    assert [fault for of in pages() for fault in faults(of)] == []


def test_other_modules_are_found() -> None:
    for so, not_so in (
        ("`broker.hot._pulls`", "`broker.hot._pops`"),
        ("Twelve extension modules", "Six extension modules"),
        ("| `broker.server.loop._heap`", "| `loop`"),
    ):
        assert so in POLICY.text
        assert faults(POLICY._replace(text=POLICY.text.replace(so, not_so))) != []
