"""The options of Spark's sources and sink that docs/spark.md lists, with the code's defaults."""

import ast
import importlib
import re
from functools import cache
from typing import Any

import pytest

from tests.support.prose import ROOT, page, sources

pytest.importorskip("pyspark")

SPARK = page(ROOT / "docs/spark.md")
READ_BY = frozenset(
    {"text", "names", "required", "choice", "boolean", "integer", "size_bytes", "time_ms"}
)
# Read by other names than those of a call with the name in it.
PIPELINE = ROOT / "rockhopper" / "pipeline"
ELSEWHERE = frozenset({"columns"})
_SIZES = {"k": 1 << 10, "m": 1 << 20}


@cache
def defaults() -> dict[str, set[Any]]:
    """What the code takes for each option that is not given, as far as that is a plain value."""
    found: dict[str, set[Any]] = {}
    for path in sources(".py"):
        if PIPELINE not in path.parents:
            continue
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            match node:
                case ast.Call(
                    func=ast.Attribute(attr=kind),
                    args=[ast.Constant(value=str(name)), *rest],
                ) if kind in READ_BY:
                    values = found.setdefault(name, set())
                    module = path.relative_to(ROOT).with_suffix("").as_posix().replace("/", ".")
                    if rest and kind not in {"required"}:
                        values.update(_value(rest[0], module, kind))
    return found


def _value(node: ast.expr, module: str, kind: str) -> set[Any]:
    try:
        names = vars(importlib.import_module(module))
        value = eval(ast.unparse(node), dict(names))
    except NameError:
        return set()
    return {value[0]} if kind == "choice" else {value}


def options() -> list[tuple[str, str]]:
    """Each option that stands first in a row of the page's tables, and its default there."""
    found = []
    for table in SPARK.tables():
        if table.heads[:2] == ("option", "default"):
            for _, cells in table.rows:
                keys = re.findall(r"`([\w.]+)`", cells[0])
                values = cells[1].split(", ")
                found += [
                    (key, values[at] if len(values) == len(keys) else cells[1])
                    for at, key in enumerate(keys)
                ]
    return found


def in_code(said: str) -> Any:
    """*said* as the code has it; itself where it is words."""
    said = said.strip("`")
    if size := re.fullmatch(r"(\d+)([km])", said):
        return int(size[1]) * _SIZES[size[2]]
    if said in {"true", "false"}:
        return said == "true"
    return int(said) if said.isdigit() else said


def test_each_option_is_read() -> None:
    known = {
        name
        for path in sources(".py")
        if "pipeline" in path.parts
        for name in re.findall(r'"([A-Za-z][\w.]*)"', path.read_text(encoding="utf-8"))
    }
    assert len(options()) > 60
    assert [key for key, _ in options() if key not in known | ELSEWHERE] == []


def test_defaults_are_those_of_the_code() -> None:
    compared = [
        (key, said, defaults()[key])
        for key, said in options()
        if defaults().get(key, set()) - {None, ""} and re.fullmatch(r"`?[\w*-]+`?", said)
        if said not in {"none", "null"} and not said.endswith("m`")
    ]
    assert len(compared) > 15
    wrong = [
        (key, said, found)
        for key, said, found in compared
        if in_code(said) not in found and str(in_code(said)) not in {str(each) for each in found}
    ]
    assert wrong == []


def test_what_is_said_to_be_none_has_no_default() -> None:
    wrong = [
        key
        for key, said in options()
        if said == "none" and any(defaults().get(key, set()) - {None, "", "none"})
    ]
    assert wrong == []
