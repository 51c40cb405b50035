"""Figures of features: declarations, and files outside a feature that know it.

A feature is a package below broker/features. Its declaration is a class with ``name``, ``requires``
and ``tests``. ``tests`` are the paths of the feature's own tests, from the root of the checkout. A
path names a file, or a folder with all its contents.
"""

import ast
import re
from collections.abc import Iterator
from dataclasses import dataclass

from tests.house.tree import BROKER, Module, Tree, is_in

DECLARED = {"name", "requires", "tests"}
# The feature that CONTRIBUTING.md shows: it has its own state, and request codes for it.
EXAMPLE = "sink"
# The minimum: a declaration, processors and a state.
OWN_FILES_MIN = 3
_TEST = re.compile(r"^ *(?:async )?def test_", re.MULTILINE)


@dataclass(frozen=True)
class Declaration:
    """A feature, and the paths of its own tests."""

    package: str
    tests: tuple[str, ...]


def declarations(tree: Tree) -> list[Declaration]:
    """Return the features with a declaration."""
    return [
        Declaration(package, tests)
        for package in tree.features
        for tests in [_declared_tests(tree, package)]
        if tests is not None
    ]


def is_declaration(node: ast.ClassDef) -> bool:
    """Return whether the class has all attributes of a declaration."""
    return {name for name, _ in _class_values(node)} >= DECLARED


def _declared_tests(tree: Tree, package: str) -> tuple[str, ...] | None:
    for module in tree.modules:
        if is_in(module.name, package):
            for node in module.classes:
                if is_declaration(node):
                    return tuple(ast.literal_eval(dict(_class_values(node))["tests"]))
    return None


def _class_values(node: ast.ClassDef) -> Iterator[tuple[str, ast.expr]]:
    for each in node.body:
        if isinstance(each, ast.AnnAssign) and isinstance(each.target, ast.Name) and each.value:
            yield each.target.id, each.value
        elif isinstance(each, ast.Assign):
            for target in each.targets:
                if isinstance(target, ast.Name):
                    yield target.id, each.value


def shares(tree: Tree) -> dict[str, float]:
    """Return the declared features, with their percentage of all tests."""
    declared = declarations(tree)
    if not declared:
        return {}
    counts = {test.path.as_posix(): len(_TEST.findall(test.text)) for test in tree.tests}
    return {
        each.package: round(
            100
            * sum(
                count
                for path, count in counts.items()
                if any(path == own or path.startswith(f"{own}/") for own in each.tests)
            )
            / sum(counts.values()),
            1,
        )
        for each in declared
    }


def importers(tree: Tree) -> Iterator[str]:
    """Yield the files that import a feature without being part of it, with these features."""
    for module in tree.modules:
        foreign = [
            package
            for package in tree.features
            if not is_in(module.name, package)
            and any(is_in(name, package) for name in tree.imports(module))
        ]
        if foreign:
            yield f"{module.path}: {', '.join(foreign)}"


def files_for_stateful_request(tree: Tree) -> Iterator[str]:
    """Yield the files of the broker that a feature with state needs, as the example shows.

    These are the files outside its folder whose code names it (without comments, docstrings and
    settings), and the minimum of files in such a folder.
    """
    for number in range(OWN_FILES_MIN):
        yield f"in its own folder: {number + 1}"
    pattern = re.compile(EXAMPLE, re.IGNORECASE)
    for module in tree.broker:
        is_own = any(
            EXAMPLE in package and is_in(module.name, package) for package in tree.features
        )
        if is_own or is_in(module.name, f"{BROKER}.settings"):
            continue
        if any(pattern.search(name) for name in _names_in_code(module)):
            yield str(module.path)


def _names_in_code(module: Module) -> Iterator[str]:
    for node in module.nodes:
        if isinstance(node, ast.Name):
            yield node.id
        elif isinstance(node, ast.Attribute):
            yield node.attr
        elif isinstance(node, ast.ImportFrom):
            yield node.module or ""
        elif isinstance(node, ast.alias | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            yield node.name
        elif isinstance(node, ast.arg):
            yield node.arg
