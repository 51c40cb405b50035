"""Sizes: complexity, attributes, modules, and the tests beside them."""

import ast
from pathlib import Path

import pytest

from tests.house import sizes
from tests.support.small_house import house


@pytest.mark.parametrize(
    ("body", "complexity"),
    [
        ("pass", 1),
        ("if a: pass\nelif b: pass\nelse: pass", 3),
        ("for a in b:\n    while c: pass", 3),
        ("try: pass\nexcept A: pass\nexcept B: pass\nfinally: pass", 3),
        ("match a:\n    case 1: pass\n    case 2: pass", 3),
        ("return a and b and c or d", 4),
        ("return a if b else c", 2),
        ("return [x for x in a for y in b if x and y]", 4),
        ("return lambda: a or b", 2),
        ("def inner():\n    if a: pass", 1),
    ],
)
def test_complexity_counts_branches_operators_and_comprehensions(
    body: str, complexity: int
) -> None:
    text = "def f():\n" + "\n".join(f"    {line}" for line in body.splitlines())
    (function,) = ast.parse(text).body
    assert isinstance(function, ast.FunctionDef)
    assert sizes.complexity(function) == complexity


def test_a_function_is_complex_over_the_limit_alone(tmp_path: Path) -> None:
    ten, eleven = (" or ".join("abcdefghijk"[:n]) for n in (10, 11))
    text = f"def f(): return {ten}\ndef g(): return {eleven}\n"
    assert list(sizes.complex_functions(house(tmp_path, client__x=text))) == ["client/x.py:2 g: 11"]


def test_parameters_are_counted_without_self(tmp_path: Path) -> None:
    eight = ", ".join(f"p{n}" for n in range(8))
    text = f"class C:\n    def f(self, {eight}): ...\n    def g(self, {eight}, *, last): ...\n"
    assert list(sizes.wide_functions(house(tmp_path, client__x=text))) == ["client/x.py:3 g: 9"]


def test_attributes_are_what_any_method_assigns(tmp_path: Path) -> None:
    text = (
        "class C:\n"
        "    def __init__(self): self.a = self.b = 0\n"
        "    def later(self): self.a, self.c = 1, self.d\n"
        "    def other(self, x): x.e = 1\n"
    )
    assert sizes.attributes(house(tmp_path, client__x=text)) == [(3, "client/x.py:1 C")]


def test_a_base_with_one_subclass_hides_no_attributes(tmp_path: Path) -> None:
    text = (
        "class Half:\n    def __init__(self): self.a = 0\n"
        "class Whole(Half):\n    def __init__(self): self.b = 0\n"
        "class Shared:\n    def __init__(self): self.c = 0\n"
        "class One(Shared): ...\n"
        "class Two(Shared): ...\n"
    )
    counted = sizes.attributes(house(tmp_path, broker__x=text))
    found = {place.split()[1]: count for count, place in counted}
    assert found == {"Whole": 2, "Half": 1, "Shared": 1, "One": 0, "Two": 0}


def test_fields_count_unless_the_data_class_is_frozen(tmp_path: Path) -> None:
    text = "@dataclass\nclass A:\n    a: int\n\n@dataclass(frozen=True)\nclass B:\n    b: int\n"
    assert sizes.attributes(house(tmp_path, broker__x=text)) == [(1, "broker/x.py:2 A")]


def test_a_small_module_has_one_importer_and_belongs_to_no_feature(tmp_path: Path) -> None:
    small = "from rockhopper.broker import {0}\n"
    tree = house(
        tmp_path,
        broker__user="".join(small.format(name) for name in ("once", "twice", "long")),
        broker__other=small.format("twice"),
        broker__once="x = 1\n",
        broker__twice="x = 1\n",
        broker__long="x = 1\n" * sizes.SMALL_LINES,
        broker__features__sinks__notes="x = 1\n",
        broker__features__sinks__main="from rockhopper.broker.features.sinks import notes\n",
    )
    assert list(sizes.small_modules(tree)) == ["broker/once.py: 1 lines for broker.user"]


def test_a_test_is_thin_under_a_fifth_of_the_module_it_mirrors(tmp_path: Path) -> None:
    module = "x = 1\n" * 100
    tree = house(
        tmp_path,
        broker__thin=module,
        broker__fat=module,
        broker__none=module,
        broker__short="x = 1\n" * 99,
        tests__unit__broker__test_thin="x = 1\n" * 19,
        tests__unit__broker__test_fat="x = 1\n" * 20,
    )
    assert list(sizes.thin_tests(tree)) == ["tests/unit/broker/test_thin.py: 19 lines for 100"]
    assert list(sizes.untested(tree)) == ["broker/none.py"]
