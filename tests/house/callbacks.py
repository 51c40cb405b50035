"""Figures of callbacks: calls whose target is known only at run time.

A slot is an attribute that holds a function of another object. These are counted:

- attributes that another object assigns: ``other.attribute = something``. Either ``attribute`` is
  declared with a callable type or initially holds a function, or ``something`` is a method of the
  assigning class, a lambda or a partial. The name does not matter;
- attributes that a method sets to a callable parameter: this is the same kind of assignment;
- callables passed to a constructor that return nothing, so they are called back. A scheduler
  (``call_later``) counts as a clock. Callables that return a value are questions (a clock, a rule):
  they are reported, but not bounded.

A list of listeners, to which other objects append, is a slot of its own kind and is counted
separately: of callables, or of objects of a class whose name ends in Listener. Its name and type
identify it, since one list is reached by many ways (``connection.on_close``, ``session.on_close``).
"""

import ast
from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import chain
from typing import TypeGuard

from tests.house.tree import Module, Tree

_NOTHING = {"None", "object", "Awaitable[None]", "Coroutine[Any, Any, None]"}
_SCHEDULERS = {"call_later", "call_soon"}
_FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)


@dataclass(frozen=True)
class Declared:
    """The declarations of the whole broker."""

    aliases: dict[str, dict[str, ast.expr]]
    """By module: the names that are aliases of callable types."""
    slots: frozenset[str]
    """Attributes that hold a callable in some class."""
    lists: dict[str, set[str]]
    """Attributes that hold a list of listeners -> their types."""


def declared(tree: Tree) -> Declared:
    """Collect the declarations in the classes of the broker."""
    aliases = _aliases(tree)
    slots: set[str] = set()
    lists: dict[str, set[str]] = defaultdict(set)
    for module in tree.broker:
        known = aliases[module.name]
        functions = {node.name for node in module.tree.body if isinstance(node, _FUNCTIONS)}
        for node in module.classes:
            for name, annotation, value in _attributes(node):
                is_callable = annotation is not None and _callable_in(annotation, known) is not None
                is_function = isinstance(value, ast.Lambda) or (
                    isinstance(value, ast.Name) and value.id in functions
                )
                if annotation is not None and _is_list(annotation):
                    if is_callable or _names_listener(annotation):
                        lists[name].add(ast.unparse(annotation).strip("'\""))
                elif is_function or is_callable:
                    slots.add(name)
    return Declared(aliases, frozenset(slots), dict(lists))


def _aliases(tree: Tree) -> dict[str, dict[str, ast.expr]]:
    """Return the aliases of callable types that each module defines or imports."""
    defined: dict[str, dict[str, ast.expr]] = {
        module.name: {
            target.id: value
            for node in module.tree.body
            for target, value in _named_values(node)
            if isinstance(value, ast.Subscript | ast.BinOp) and _callable_in(value, {}) is not None
        }
        for module in tree.modules
    }
    found = {name: dict(own) for name, own in defined.items()}
    for module in tree.broker:
        for node in module.nodes:
            if isinstance(node, ast.ImportFrom):
                source = defined.get((node.module or "").removeprefix("rockhopper."), {})
                for alias in node.names:
                    if alias.name in source:
                        found[module.name][alias.asname or alias.name] = source[alias.name]
    return found


def assigned_slots(tree: Tree, known: Declared) -> list[str]:
    """Return slots that are assigned outside their class, with the places."""
    places: dict[str, list[str]] = defaultdict(list)
    for module in tree.broker:
        methods = _methods_by_line(module)
        for node in module.nodes:
            if isinstance(node, ast.Assign):
                for target, value in _pairs(node):
                    if _is_outside(target) and _is_callback(target, value, known, methods):
                        slot = f"{_last_name(target.value)}.{target.attr}"
                        places[slot].append(f"{module.path}:{node.lineno}")
    return [f"{slot}: {', '.join(found)}" for slot, found in sorted(places.items())]


def listener_lists(tree: Tree, known: Declared) -> list[str]:
    """Return lists of listeners that other objects append to, with the places.

    A place appears with each type that lists of this name have.
    """
    places: dict[str, list[str]] = defaultdict(list)
    for module in tree.broker:
        for node in module.nodes:
            if (
                isinstance(node, ast.Call)
                and isinstance(node.func, ast.Attribute)
                and node.func.attr in ("append", "add")
                and _is_outside(holder := node.func.value)
                and holder.attr in known.lists
            ):
                places[holder.attr].append(f"{module.path}:{node.lineno}")
    return [
        f"{name}, {kind}: {', '.join(found)}"
        for name, found in sorted(places.items())
        for kind in sorted(known.lists[name])
    ]


def callbacks(tree: Tree, known: Declared) -> list[str]:
    """Return all slots for one listener."""
    return [
        *assigned_slots(tree, known),
        *slots_set_by_methods(tree, known),
        *handed_callbacks(tree, known),
    ]


def slots_set_by_methods(tree: Tree, known: Declared) -> Iterator[str]:
    """Yield attributes that a method, except the constructor, sets to a callable parameter."""
    for module in tree.broker:
        for node in module.classes:
            for method in node.body:
                if isinstance(method, _FUNCTIONS) and method.name != "__init__":
                    for attribute in _set_to_given(method, known.aliases[module.name]):
                        yield f"{module.path}:{method.lineno} {node.name}.{attribute}"


def _set_to_given(
    method: ast.FunctionDef | ast.AsyncFunctionDef, aliases: dict[str, ast.expr]
) -> Iterator[str]:
    given = {
        argument.arg
        for argument in _arguments(method)
        if argument.annotation is not None
        and _callable_in(argument.annotation, aliases) is not None
    }
    assignments = [node for node in ast.walk(method) if isinstance(node, ast.Assign)]
    for target, value in chain.from_iterable(map(_pairs, assignments)):
        if _is_own(target) and isinstance(value, ast.Name) and value.id in given:
            yield target.attr


def handed_callbacks(tree: Tree, known: Declared) -> Iterator[str]:
    """Yield callables passed to constructors that return nothing."""
    return (place for place, is_question in _handed(tree, known) if not is_question)


def handed_questions(tree: Tree, known: Declared) -> Iterator[str]:
    """Yield callables passed to constructors that return a value, including clocks."""
    return (place for place, is_question in _handed(tree, known) if is_question)


def _handed(tree: Tree, known: Declared) -> Iterator[tuple[str, bool]]:
    for module in tree.broker:
        for node in module.classes:
            for name, annotation in _parameters(node):
                returned = _returned(annotation, known.aliases[module.name])
                is_slot = name not in _SCHEDULERS and not _is_list(annotation)
                if returned is not None and is_slot:
                    yield (
                        f"{module.path}:{node.lineno} {node.name}({name})",
                        returned not in _NOTHING,
                    )


def _parameters(node: ast.ClassDef) -> Iterator[tuple[str, ast.expr]]:
    """Yield the constructor's parameters: those of ``__init__``, or the fields of a dataclass."""
    for each in node.body:
        if isinstance(each, ast.FunctionDef) and each.name == "__init__":
            for argument in _arguments(each):
                if argument.annotation is not None:
                    yield argument.arg, argument.annotation
    makers = [*node.decorator_list, *node.bases]
    if any(word in ast.unparse(each) for each in makers for word in ("dataclass", "NamedTuple")):
        for each in node.body:
            if isinstance(each, ast.AnnAssign) and isinstance(each.target, ast.Name):
                yield each.target.id, each.annotation


def _arguments(function: ast.FunctionDef | ast.AsyncFunctionDef) -> list[ast.arg]:
    arguments = function.args
    return [*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs]


def _named_values(node: ast.stmt) -> Iterator[tuple[ast.Name, ast.expr]]:
    targets = node.targets if isinstance(node, ast.Assign) else [getattr(node, "target", None)]
    value = getattr(node, "value", None)
    for target in targets:
        if isinstance(target, ast.Name) and value is not None:
            yield target, value


def _attributes(
    node: ast.ClassDef,
) -> Iterator[tuple[str, ast.expr | None, ast.expr | None]]:
    """Yield the attributes that the class sets or declares: name, annotation and value."""
    for each in node.body:
        if isinstance(each, ast.AnnAssign) and isinstance(each.target, ast.Name):
            yield each.target.id, each.annotation, each.value
        if not isinstance(each, _FUNCTIONS):
            continue
        annotations = {argument.arg: argument.annotation for argument in _arguments(each)}
        for inner in ast.walk(each):
            if isinstance(inner, ast.AnnAssign) and _is_own(inner.target):
                yield inner.target.attr, inner.annotation, inner.value
            elif isinstance(inner, ast.Assign):
                for target in inner.targets:
                    if _is_own(target):
                        name = inner.value.id if isinstance(inner.value, ast.Name) else ""
                        yield target.attr, annotations.get(name), inner.value


def _is_own(node: ast.expr | None) -> TypeGuard[ast.Attribute]:
    return (
        isinstance(node, ast.Attribute)
        and isinstance(node.value, ast.Name)
        and node.value.id in ("self", "cls")
    )


def _is_outside(node: ast.expr) -> TypeGuard[ast.Attribute]:
    return isinstance(node, ast.Attribute) and not _is_own(node)


def _pairs(node: ast.Assign) -> Iterator[tuple[ast.expr, ast.expr]]:
    for target in node.targets:
        if isinstance(target, ast.Tuple) and isinstance(node.value, ast.Tuple):
            yield from zip(target.elts, node.value.elts, strict=False)
        else:
            yield target, node.value


def _is_callback(
    target: ast.Attribute, value: ast.expr, known: Declared, methods: dict[int, set[str]]
) -> bool:
    if isinstance(value, ast.Lambda):
        return True
    if isinstance(value, ast.Call) and _last_name(value.func) == "partial":
        return True
    if _is_own(value) and value.attr in methods.get(value.lineno, ()):
        return True
    if isinstance(value, ast.Constant | ast.Tuple | ast.List | ast.Dict):
        return False
    return target.attr in known.slots


def _methods_by_line(module: Module) -> dict[int, set[str]]:
    """Return, by line, the methods of the class around it, without properties."""
    found: dict[int, set[str]] = {}
    for node in module.classes:
        methods = {
            each.name
            for each in node.body
            if isinstance(each, _FUNCTIONS)
            and not any("property" in ast.unparse(mark) for mark in each.decorator_list)
        }
        found |= dict.fromkeys(range(node.lineno, (node.end_lineno or 0) + 1), methods)
    return found


def _is_list(annotation: ast.expr) -> bool:
    text = ast.unparse(annotation).strip("'\"")
    return text.startswith(("list[", "dict[", "set["))


def _names_listener(annotation: ast.expr) -> bool:
    return any(
        isinstance(node, ast.Name) and node.id.endswith("Listener") for node in _walk(annotation)
    )


def _callable_in(annotation: ast.expr, aliases: dict[str, ast.expr]) -> ast.expr | None:
    """Return the callable in *annotation*, by its own name or an alias."""
    for node in _walk(annotation):
        if isinstance(node, ast.Subscript) and _last_name(node.value) == "Callable":
            return node
        if isinstance(node, ast.Name) and node.id in aliases:
            return aliases[node.id]
    return None


def _returned(annotation: ast.expr, aliases: dict[str, ast.expr]) -> str | None:
    """Return the return type of the callable in *annotation*; None if it is not callable."""
    found = _callable_in(annotation, aliases)
    if found is None:
        return None
    for node in _walk(found):
        if isinstance(node, ast.Subscript) and _last_name(node.value) == "Callable":
            arguments = node.slice
            return ast.unparse(arguments.elts[-1]) if isinstance(arguments, ast.Tuple) else ""
    return ""


def _walk(annotation: ast.expr) -> Iterable[ast.AST]:
    """Walk all nodes; for a quoted annotation, walk the quoted code."""
    if isinstance(annotation, ast.Constant) and isinstance(annotation.value, str):
        annotation = ast.parse(annotation.value, mode="eval").body
    return ast.walk(annotation)


def _last_name(node: ast.expr) -> str:
    if isinstance(node, ast.Attribute):
        return node.attr
    return node.id if isinstance(node, ast.Name) else ast.unparse(node)
