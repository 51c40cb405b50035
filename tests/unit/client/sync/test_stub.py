"""The stub of the synchronous clients, which editors and type checkers read, fits the classes."""

import ast
import inspect
from pathlib import Path
from typing import Any

import pytest

from rockhopper.client import sync
from rockhopper.client.sync.face import FacePart

NOT_SHOWN = {"closes_last", "close_at_exit"}
STUB = ast.parse(Path(sync.__file__).with_suffix(".pyi").read_text(encoding="utf-8"))
WRITTEN = {each.name: each for each in STUB.body if isinstance(each, ast.ClassDef)}
PARTS = {
    name: type(each) for name, each in vars(sync.Admin()).items() if isinstance(each, FacePart)
}
CLASSES = [*(getattr(sync, name) for name in sync.__all__), *PARTS.values()]


@pytest.mark.parametrize("cls", CLASSES, ids=lambda cls: cls.__name__)
def test_it_has_each_public_method_with_its_parameters(cls: Any) -> None:
    members = WRITTEN[cls.__name__].body
    functions = {each.name: each for each in members if isinstance(each, ast.FunctionDef)}
    public = {each for each in dir(cls) if not each.startswith("_")} - NOT_SHOWN
    assert {each for each in functions if not each.startswith("_")} == public
    for name, function in functions.items():
        if not isinstance(inspect.getattr_static(cls, name), property):
            assert parameters_of(function) == list(inspect.signature(getattr(cls, name)).parameters)


def test_it_has_the_parts_of_a_client() -> None:
    written = {
        each.target.id: each.annotation.id
        for each in WRITTEN["Admin"].body
        if isinstance(each, ast.AnnAssign)
        and isinstance(each.target, ast.Name)
        and isinstance(each.annotation, ast.Name)
    }
    assert written == {name: cls.__name__ for name, cls in PARTS.items()}


def parameters_of(function: ast.FunctionDef) -> list[str]:
    taken = function.args
    named = [*taken.args, taken.vararg, *taken.kwonlyargs, taken.kwarg]
    return [each.arg for each in named if each is not None]
