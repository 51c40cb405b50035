"""Makes the stub of the synchronous clients, for editors and type checkers: ``make pages``.

Their methods are assignments, ``send = wrap_waiting(Producer.send)``, which editors show without
parameters. The stub has each method as it is called, with its docstring. It stands beside
``__init__.py`` alone, so that the modules themselves are still type-checked.
"""

import subprocess
import sys
from collections.abc import Iterable, Iterator
from typing import Any

from griffe import (
    Alias,
    Attribute,
    Class,
    Docstring,
    Expr,
    ExprAttribute,
    ExprCall,
    ExprName,
    Function,
    GriffeLoader,
    ParameterKind,
    load_extensions,
)

from docs.site.faces import Faces
from docs.site.help_files import ROOT
from rockhopper.client import sync

FILE = "rockhopper/client/sync/__init__.pyi"
_HEAD = "# Made by `make pages` of the modules beside this file: do not edit.\n\n"
_SHOWN = frozenset({"__init__", "__enter__", "__exit__", "__iter__"})
_STARS = {ParameterKind.var_positional: "*", ParameterKind.var_keyword: "**"}
_HIDDEN = frozenset({"closes_last", "close_at_exit"})
_PART_INIT = "rockhopper.client.sync.face.FacePart.__init__"
_PACKAGE = "rockhopper.client.sync"


def make_stub() -> str:
    """Return the text of the stub."""
    loader = GriffeLoader(search_paths=[ROOT], extensions=load_extensions("dataclasses", Faces))
    package = loader.load("rockhopper", try_relative_path=False)
    homes = {name: getattr(sync, name).__module__ for name in sync.__all__}
    clients = [
        package[f"{home}.{name}".removeprefix("rockhopper.")] for name, home in homes.items()
    ]
    parts = [part for client in clients for part in _find_parts(client)]
    names = _Names(client.name for client in [*parts, *clients])
    bodies = "\n".join(_format_class(cls, names) for cls in [*parts, *clients])
    exported = f"__all__ = {[client.name for client in clients]}\n\n"
    return _tidy(_HEAD + names.format_imports() + exported + bodies)


def _find_parts(client: Class) -> Iterator[Class]:
    """Find the classes of a client's attributes, such as Admin's groups."""
    for member in client.members.values():
        if isinstance(member, Attribute) and (part := _part_of(member)) is not None:
            yield part


def _part_of(attribute: Attribute) -> Class | None:
    if not isinstance(value := attribute.value, ExprCall) or attribute.name.startswith("_"):
        return None
    found = attribute.modules_collection[value.function.canonical_path]
    return found if isinstance(found, Class) else None


class _Names:
    """The names that the stub imports; one that is a class of the stub gets another name."""

    def __init__(self, own: Iterable[str]) -> None:
        self._own = frozenset(own)
        self._imports: dict[str, str] = {}

    def format(self, value: str | Expr | None) -> str:
        """Return an annotation or a default as text, and note what it needs."""
        if not isinstance(value, Expr):
            return str(value)
        return "".join(self._pieces(value))

    def _pieces(self, value: Expr) -> Iterator[str]:
        if isinstance(value, ExprName | ExprAttribute):
            yield self.take(value.canonical_path)
            return
        for each in value.iterate(flat=False):
            if isinstance(each, Expr):
                yield from self._pieces(each)
            else:
                yield each

    def take(self, path: str) -> str:
        """Import what is at `path`, and return its name here."""
        module, _, name = path.rpartition(".")
        if module in ("", "builtins"):
            return path
        if module.startswith(_PACKAGE) and name in self._own:
            return name
        here = f"Async{name}" if name in self._own else name
        if self._imports.setdefault(here, path) != path:
            raise ValueError(f"{path} and {self._imports[here]} are both called {here}: rename one")
        return here

    def format_imports(self) -> str:
        """Return the imports of all names that were taken."""
        lines = []
        for here, path in self._imports.items():
            module, _, name = path.rpartition(".")
            lines.append(f"from {module} import {name if name == here else f'{name} as {here}'}\n")
        return "".join(lines)


def _format_class(cls: Class, names: _Names) -> str:
    lines = [f"class {cls.name}:", *_format_docstring(cls.docstring, "    ")]
    for name, member in cls.all_members.items():
        target: Any = member.final_target if isinstance(member, Alias) else member
        if name in _HIDDEN or (name.startswith("_") and name not in _SHOWN):
            continue
        if target.path == _PART_INIT:
            continue
        if isinstance(target, Function):
            lines += _format_function(name, target, names)
        elif "property" in target.labels:
            lines += ["", "    @property", *_format_getter(name, target, names)]
        elif (part := _part_of(target)) is not None:
            lines.append(f"    {name}: {part.name}")
    return "\n".join([*lines, ""])


def _format_getter(name: str, attribute: Attribute, names: _Names) -> list[str]:
    head = f"    def {name}(self) -> {names.format(attribute.annotation)}:"
    return [head, *(_format_docstring(attribute.docstring, "        ") or ["        ..."])]


def _format_function(name: str, function: Function, names: _Names) -> list[str]:
    lines = [""]
    for decorator in function.decorators:
        if (path := getattr(decorator.value, "canonical_path", "")).startswith("contextlib."):
            lines.append(f"    @{names.take(path)}")
    returns = names.format(function.returns)
    lines.append(f"    def {name}({_format_parameters(function, names)}) -> {returns}:")
    return lines + (_format_docstring(function.docstring, "        ") or ["        ..."])


def _format_parameters(function: Function, names: _Names) -> str:
    shown: list[str] = []
    for each in function.parameters:
        if each.kind is ParameterKind.keyword_only and not any(one[0] == "*" for one in shown):
            shown.append("*")
        text = _STARS.get(each.kind, "") + each.name
        if each.annotation is not None:
            text += f": {names.format(each.annotation)}"
        if each.default is not None and each.kind not in _STARS:
            text += f" = {names.format(each.default)}"
        shown.append(text)
    return ", ".join(shown)


def _format_docstring(docstring: Docstring | None, indent: str) -> list[str]:
    if docstring is None:
        return []
    lines = f'"""{docstring.value}\n"""' if "\n" in docstring.value else f'"""{docstring.value}"""'
    return [indent + line if line else "" for line in lines.splitlines()]


def _tidy(text: str) -> str:
    """Return the text as the formatter and the linter want it."""
    for command in (["check", "--select", "I,F401", "--fix", "--quiet"], ["format", "--quiet"]):
        ran = subprocess.run(
            [sys.executable, "-m", "ruff", *command, "--stdin-filename", FILE, "-"],
            input=text,
            cwd=ROOT,
            capture_output=True,
            text=True,
            check=True,
        )
        text = ran.stdout
    return text


def main() -> int:
    """Write the stub."""
    (ROOT / FILE).write_text(make_stub(), encoding="utf-8")
    print(f"{FILE} is up to date")
    return 0


if __name__ == "__main__":
    sys.exit(main())
