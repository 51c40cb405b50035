"""The sources, parsed once: modules by their dotted names, below their folders at the top.

All paths that the figures know are in this file: when a folder moves, this is what changes.
"""

import ast
import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

PARTS = ("broker", "client", "pipeline", "protocol")
BROKER = "broker"
FAST_PATH = "broker.hot"
FEATURES = "broker.features"
# Folders whose children are rooms; so are all other children of broker/.
GROUPS = ("broker.kernel", "broker.server", "broker.replication", "broker.gateways", FEATURES)
# Who may speak of connections, requests and codes: folders and modules with these names.
DOORS = frozenset({"remoting", "processors", "name_server", "hot"})

# Parsing finds the same, and takes ten times as long.
_DOCSTRING = re.compile(r'^[ \t]*r?""".*?"""', re.DOTALL | re.MULTILINE)


@dataclass(frozen=True)
class Module:
    """One file. *path* is from *root*: the package for its parts, the checkout for all others."""

    root: Path
    path: Path

    @cached_property
    def name(self) -> str:
        """Without ``rockhopper.``: ``broker.store.flush``; a package by its folder's name."""
        return ".".join(self.path.with_suffix("").parts).removesuffix(".__init__")

    @cached_property
    def folder(self) -> str:
        """The package that it is in, by its dotted name."""
        return ".".join(self.path.parent.parts)

    @cached_property
    def text(self) -> str:
        """The source."""
        return (self.root / self.path).read_text(encoding="utf-8")

    @cached_property
    def tree(self) -> ast.Module:
        """The syntax tree."""
        return ast.parse(self.text)

    @cached_property
    def nodes(self) -> list[ast.AST]:
        """All nodes of ``tree``."""
        return list(ast.walk(self.tree))

    @cached_property
    def classes(self) -> list[ast.ClassDef]:
        """All classes, nested ones included."""
        return [node for node in self.nodes if isinstance(node, ast.ClassDef)]

    @cached_property
    def functions(self) -> list[ast.FunctionDef | ast.AsyncFunctionDef]:
        """All functions, methods and nested ones included."""
        return [
            node for node in self.nodes if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
        ]

    @property
    def is_face(self) -> bool:
        """Whether it is the ``__init__`` or the ``__main__`` of a package."""
        return self.path.name in ("__init__.py", "__main__.py")

    @cached_property
    def lines(self) -> int:
        """All lines."""
        return self.text.count("\n")

    @cached_property
    def code_lines(self) -> int:
        """Lines that hold code: no blank ones, no comments, no docstrings."""
        lines = map(str.strip, _DOCSTRING.sub("", self.text).splitlines())
        return sum(1 for line in lines if line and not line.startswith("#"))


class Tree:
    """All modules of a checkout."""

    def __init__(self, root: Path) -> None:
        self.root = root
        package = root / "rockhopper"
        self.modules = [
            Module(package, path.relative_to(package))
            for top in PARTS
            for path in sorted((package / top).rglob("*.py"))
        ]
        self.modules += [
            Module(root, path.relative_to(root)) for path in sorted(package.glob("*.py"))
        ]
        self.tests = [
            Module(root, path.relative_to(root)) for path in sorted((root / "tests").rglob("*.py"))
        ]
        self.by_name = {module.name: module for module in self.modules}
        self._imports: dict[str, set[str]] = {}

    @property
    def broker(self) -> Iterator[Module]:
        """The modules of the broker."""
        return (module for module in self.modules if is_in(module.name, BROKER))

    def imports(self, module: Module) -> set[str]:
        """Modules of ours that *module* imports, wherever in it, under TYPE_CHECKING too."""
        if module.name not in self._imports:
            self._imports[module.name] = self._find_imports(module)
        return self._imports[module.name]

    def _find_imports(self, module: Module) -> set[str]:
        found: set[str] = set()
        for node in module.nodes:
            if isinstance(node, ast.ImportFrom) and node.module and not node.level:
                base = node.module.removeprefix("rockhopper.")
                for alias in node.names:
                    inner = f"{base}.{alias.name}"
                    found.add(inner if inner in self.by_name else base)
            elif isinstance(node, ast.Import):
                found.update(alias.name.removeprefix("rockhopper.") for alias in node.names)
        return {name for name in found if name in self.by_name}

    @cached_property
    def features(self) -> list[str]:
        """The packages of the features, by their dotted names."""
        folders = {module.folder for module in self.modules}
        return sorted(folder for folder in folders if folder.rpartition(".")[0] == FEATURES)

    def feature_of(self, name: str) -> str | None:
        """The feature that the module *name* belongs to."""
        return next((each for each in self.features if is_in(name, each)), None)


def is_in(name: str, package: str) -> bool:
    """Whether the module *name* is *package*, or lies in it."""
    return name == package or name.startswith(f"{package}.")


def room_of(name: str) -> str:
    """The room of the broker that the module *name* lies in; blank outside of the broker."""
    above = next((group for group in GROUPS if name.startswith(f"{group}.")), BROKER)
    if not name.startswith(f"{above}."):
        return ""
    return f"{above}.{name.removeprefix(f'{above}.').partition('.')[0]}"
