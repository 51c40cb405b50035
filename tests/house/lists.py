"""Figures of lists: places that enumerate parts, tables or codes by hand.

Things are the classes that derive from Part, JsonTable, Feature or State, the declarations of
features, and the codes of requests and of state records. A thing is foreign if its package is
another one. The code of a state record is always foreign. The code of a request is foreign if its
entry refers to something else than a method of the listing class.

A place lists by hand if it does one of these with eight or more foreign things:

- ``declares``: a class has annotated attributes for them;
- ``makes``: a class, or the functions of a module, call their constructors;
- ``names``: a class or a module has them side by side in displays, or in calls that take any number
  of arguments.

Splitting a list makes fewer places, but as many entries. So entries are bounded as well: an entry
is one foreign thing that one module makes or names, in lists of any length. The declarations of
features are no entries: one list has to contain them, and a new feature adds a line to it.
"""

import ast
from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from tests.house.features import is_declaration
from tests.house.tree import FEATURES, Module, Tree, is_in

MANY = 8
THING_BASES = ("Part", "JsonTable", "Feature", "State")
CODE_TYPES = {"Code": "code", "RequestCode": "code", "StateKind": "kind"}
_FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)


@dataclass(frozen=True)
class Entry:
    """One thing that one place lists."""

    module: Module
    scope: str
    form: str
    thing: str
    is_feature: bool
    """Whether it is the declaration of a feature, which one list has to contain."""


@dataclass(frozen=True)
class _Things:
    homes: dict[str, str]
    """The package of each class that is a thing."""
    features: frozenset[str]
    """The classes that declare a feature."""
    attributes: dict[str, str]
    """Attribute name -> the class of the thing that it holds."""
    takers: frozenset[str]
    """Functions and classes that take any number of positional arguments."""


def places(entries: Iterable[Entry]) -> list[str]:
    """Return the places that list many things by hand."""
    found: dict[tuple[str, str, str], set[str]] = defaultdict(set)
    for each in entries:
        found[str(each.module.path), each.scope, each.form].add(each.thing)
    return [
        f"{path} {scope} {form} {len(things)}"
        for (path, scope, form), things in found.items()
        if len(things) >= MANY
    ]


def made_or_named(entries: Iterable[Entry]) -> list[str]:
    """Return all things that a module makes or names in lists of any length, by module."""
    counted = [each for each in entries if each.form != "declares" and not each.is_feature]
    found = {(str(each.module.path), each.thing) for each in counted}
    return [f"{path}: {thing}" for path, thing in sorted(found)]


def find_entries(tree: Tree) -> Iterator[Entry]:
    """Yield all things that are listed anywhere."""
    things = _things(tree)
    for module in tree.broker:
        kinds = {
            alias.asname or alias.name: CODE_TYPES[alias.name]
            for node in module.nodes
            if isinstance(node, ast.ImportFrom)
            and (node.module or "").endswith((".codes", ".state_records"))
            for alias in node.names
            if alias.name in CODE_TYPES
        }
        for scope, nodes in _scopes(module):
            for form, thing in _listed(nodes, kinds, things, module):
                yield Entry(module, scope, form, thing, thing in things.features)


def _scopes(module: Module) -> Iterator[tuple[str, list[ast.stmt]]]:
    """Yield each class with its methods, and the rest of the module as one scope."""
    rest: list[ast.stmt] = []
    for node in module.tree.body:
        if isinstance(node, ast.ClassDef):
            yield node.name, [node]
        else:
            rest.append(node)
    yield "module", rest


def _listed(
    statements: list[ast.stmt], kinds: dict[str, str], things: _Things, module: Module
) -> Iterator[tuple[str, str]]:
    def foreign(name: str) -> bool:
        home = things.homes.get(name)
        return home is not None and home != module.folder

    for statement in statements:
        if isinstance(statement, ast.ClassDef):
            for each in statement.body:
                if isinstance(each, ast.AnnAssign):
                    for name in _names(each.annotation):
                        if foreign(name):
                            yield "declares", name
        for node in ast.walk(statement):
            if isinstance(node, ast.Call) and foreign(name := _last_name(node.func)):
                yield "makes", name
            for element, target in _elements(node, things):
                if not isinstance(element, ast.Attribute):
                    continue
                if (kind := kinds.get(_last_name(element.value))) is not None:
                    if kind == "kind" or not _is_own_method(target):
                        yield "names", f"{kind} {element.attr}"
                elif foreign(thing := things.attributes.get(element.attr, "")):
                    yield "names", thing


def _elements(node: ast.AST, things: _Things) -> Iterator[tuple[ast.expr, ast.expr | None]]:
    """Yield elements of a display or call, each with its value in a dictionary."""
    if isinstance(node, ast.Dict):
        yield from ((key, value) for key, value in zip(node.keys, node.values, strict=True) if key)
    elif isinstance(node, ast.Tuple | ast.List | ast.Set):
        if isinstance(getattr(node, "ctx", ast.Load()), ast.Load):
            yield from ((element, None) for element in node.elts)
    elif isinstance(node, ast.Call) and _last_name(node.func) in things.takers:
        yield from ((argument, None) for argument in node.args)


def _is_own_method(target: ast.expr | None) -> bool:
    """Return whether an entry refers to a method of the listing class, maybe in a wrapper call."""
    if target is None:
        return False
    if isinstance(target, ast.Call):
        return any(_is_own_method(argument) for argument in target.args)
    return isinstance(target, ast.Attribute) and _last_name(target.value) == "self"


def _things(tree: Tree) -> _Things:
    derived: dict[str, set[str]] = defaultdict(set)
    packages: dict[str, str] = {}
    takers: set[str] = set()
    homes: dict[str, str] = {}
    features: set[str] = set()
    for module in tree.broker:
        for node in module.classes:
            packages[node.name] = module.folder
            for base in node.bases:
                derived[_last_name(base)].add(node.name)
            if is_in(module.name, FEATURES) and is_declaration(node):
                homes[node.name] = module.folder
                features.add(node.name)
            takers |= {node.name for each in node.body if _takes_any(each, "__init__")}
        takers |= {node.name for node in module.functions if node.args.vararg is not None}
    left = [*THING_BASES]
    while left:
        for name in derived.pop(left.pop(), ()):
            homes[name] = packages[name]
            left.append(name)
    return _Things(homes, frozenset(features), dict(_holders(tree, homes)), frozenset(takers))


def _takes_any(node: ast.stmt, name: str) -> bool:
    return isinstance(node, ast.FunctionDef) and node.name == name and node.args.vararg is not None


def _holders(tree: Tree, homes: dict[str, str]) -> Iterator[tuple[str, str]]:
    """Yield attributes that hold things, by their declaration or assignment."""
    for module in tree.broker:
        for node in module.nodes:
            if isinstance(node, ast.Assign) and isinstance(node.value, ast.Call):
                for target in node.targets:
                    name = _last_name(node.value.func)
                    if isinstance(target, ast.Attribute) and name in homes:
                        yield target.attr, name
            elif isinstance(node, ast.AnnAssign):
                for name in _names(node.annotation):
                    if name in homes:
                        yield _last_name(node.target), name


def _names(annotation: ast.expr) -> Iterator[str]:
    for node in ast.walk(annotation):
        if isinstance(node, ast.Name):
            yield node.id


def _last_name(node: ast.expr) -> str:
    if isinstance(node, ast.Subscript):
        return _last_name(node.value)
    if isinstance(node, ast.Attribute):
        return node.attr
    return node.id if isinstance(node, ast.Name) else ""
