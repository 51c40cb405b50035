"""Figures of sizes: complexity, attributes, modules, and tests compared with their modules."""

import ast
from collections import Counter, defaultdict
from collections.abc import Iterator
from pathlib import Path

from tests.house.tree import Module, Tree

COMPLEXITY_MAX = 10
PARAMETERS_MAX = 8
ATTRIBUTES_MAX = 20
SMALL_LINES = 100
TESTED_LINES = 100
TEST_SHARE = 5

_BRANCHES = (
    ast.If,
    ast.IfExp,
    ast.For,
    ast.AsyncFor,
    ast.While,
    ast.ExceptHandler,
    ast.match_case,
    ast.comprehension,
)
_FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)


def complex_functions(tree: Tree) -> Iterator[str]:
    """Yield functions with a complexity over the limit."""
    for module in tree.modules:
        for function in module.functions:
            found = complexity(function)
            if found > COMPLEXITY_MAX:
                yield f"{module.path}:{function.lineno} {function.name}: {found}"


def complexity(function: ast.FunctionDef | ast.AsyncFunctionDef) -> int:
    """Return one, plus one for each branch, boolean operator and ``for`` of a comprehension.

    Nested functions count separately; lambdas count as part of their function.
    """
    found = 1
    nodes: list[ast.AST] = [*function.body]
    while nodes:
        node = nodes.pop()
        if isinstance(node, _FUNCTIONS):
            continue
        if isinstance(node, _BRANCHES):
            found += 1
        elif isinstance(node, ast.BoolOp):
            found += len(node.values) - 1
        nodes.extend(ast.iter_child_nodes(node))
    return found


def wide_functions(tree: Tree) -> Iterator[str]:
    """Yield functions with many parameters, without self and cls."""
    for module in tree.modules:
        for node in module.functions:
            arguments = node.args
            named = [*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs]
            count = len([each for each in named if each.arg not in ("self", "cls")])
            if count > PARAMETERS_MAX:
                yield f"{module.path}:{node.lineno} {node.name}: {count}"


def attributes(tree: Tree) -> list[tuple[int, str]]:
    """Return each class with the number of attributes of an instance, the largest first.

    The names that methods assign to ``self`` and the fields of dataclasses count. A base with one
    subclass is a part of that class, so its attributes count there as well. Frozen dataclasses
    (settings, records) do not count.
    """
    own: dict[str, set[str]] = defaultdict(set)
    bases: dict[str, set[str]] = defaultdict(set)
    places: dict[str, str] = {}
    named: dict[str, list[str]] = defaultdict(list)
    for module in tree.modules:
        for node in module.classes:
            if _is_value(node):
                continue
            key = f"{module.name}.{node.name}"
            named[node.name].append(key)
            places[key] = f"{module.path}:{node.lineno} {node.name}"
            own[key] |= set(_assigned_to_self(node))
            if _is_data_class(node):
                own[key] |= set(_fields(node))
            bases[key] = {_last_name(base) for base in node.bases}

    users = Counter(base for each in bases.values() for base in each)

    def with_pieces(key: str) -> set[str]:
        pieces = (named[base][0] for base in bases[key] if users[base] == len(named[base]) == 1)
        return own[key].union(*(with_pieces(piece) for piece in pieces if piece != key))

    counts = {key: len(with_pieces(key)) for key in places}
    return sorted(((counts[key], place) for key, place in places.items()), reverse=True)


def _assigned_to_self(node: ast.ClassDef) -> Iterator[str]:
    for function in node.body:
        if isinstance(function, _FUNCTIONS):
            for each in ast.walk(function):
                if (
                    isinstance(each, ast.Attribute)
                    and isinstance(each.ctx, ast.Store)
                    and isinstance(each.value, ast.Name)
                    and each.value.id == "self"
                ):
                    yield each.attr


def _fields(node: ast.ClassDef) -> Iterator[str]:
    for each in node.body:
        if isinstance(each, ast.AnnAssign) and isinstance(each.target, ast.Name):
            yield each.target.id


def _is_data_class(node: ast.ClassDef) -> bool:
    return any("dataclass" in ast.unparse(each) for each in node.decorator_list)


def _is_value(node: ast.ClassDef) -> bool:
    return any("frozen=True" in ast.unparse(each) for each in node.decorator_list)


def _last_name(node: ast.expr) -> str:
    if isinstance(node, ast.Subscript):
        return _last_name(node.value)
    if isinstance(node, ast.Attribute):
        return node.attr
    return node.id if isinstance(node, ast.Name) else ""


def small_modules(tree: Tree) -> Iterator[str]:
    """Yield short modules of the broker, without features, that exactly one module imports."""
    importers: dict[str, set[str]] = defaultdict(set)
    for module in tree.modules:
        for name in tree.imports(module) - {module.name}:
            importers[name].add(module.name)
    for module in tree.broker:
        if module.is_face or module.lines >= SMALL_LINES or tree.feature_of(module.name):
            continue
        if len(importers[module.name]) == 1:
            yield f"{module.path}: {module.lines} lines for {importers[module.name].pop()}"


def thin_tests(tree: Tree) -> Iterator[str]:
    """Yield test files at a module's mirrored path that are much smaller, in code lines."""
    for module, test in _mirrored(tree):
        if test is not None and test.code_lines * TEST_SHARE < module.code_lines:
            yield f"{test.path}: {test.code_lines} lines for {module.code_lines}"


def untested(tree: Tree) -> Iterator[str]:
    """Yield modules of TESTED_LINES or more without a test at their mirrored path."""
    return (str(module.path) for module, test in _mirrored(tree) if test is None)


def _mirrored(tree: Tree) -> Iterator[tuple[Module, Module | None]]:
    tests = {test.path: test for test in tree.tests}
    for module in tree.modules:
        if not module.is_face and module.code_lines >= TESTED_LINES:
            path = Path("tests/unit") / module.path.parent / f"test_{module.path.name}"
            yield module, tests.get(path)
