"""The sources, parsed once: modules by their dotted names, below the top-level folders.

This file has all paths that the figures know: when a folder moves, only this file changes.
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
# Packages whose children count as folders of the broker; so do all other children of broker/.
GROUPS = ("broker.kernel", "broker.server", "broker.replication", "broker.gateways", FEATURES)
# Folders and modules that may use connections, requests and codes.
DOORS = frozenset({"remoting", "processors", "processor_table", "name_server", "hot"})

# Parsing gives the same result, but takes ten times as long.
_DOCSTRING = re.compile(r'^[ \t]*r?""".*?"""', re.DOTALL | re.MULTILINE)


@dataclass(frozen=True)
class Module:
    """One file. *path* is relative to *root*: the package for its parts, else the checkout."""

    root: Path
    path: Path

    @cached_property
    def name(self) -> str:
        """The name without ``rockhopper.``, such as ``broker.store.flush``.

        A package has the name of its folder.
        """
        return ".".join(self.path.with_suffix("").parts).removesuffix(".__init__")

    @cached_property
    def folder(self) -> str:
        """The dotted name of its package."""
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
        """All classes, including nested ones."""
        return [node for node in self.nodes if isinstance(node, ast.ClassDef)]

    @cached_property
    def functions(self) -> list[ast.FunctionDef | ast.AsyncFunctionDef]:
        """All functions, including methods and nested ones."""
        return [
            node for node in self.nodes if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
        ]

    @property
    def is_face(self) -> bool:
        """Whether it is the ``__init__`` or the ``__main__`` of a package."""
        return self.path.name in ("__init__.py", "__main__.py")

    @cached_property
    def lines(self) -> int:
        """The number of all lines."""
        return self.text.count("\n")

    @cached_property
    def code_lines(self) -> int:
        """The number of code lines, without blank lines, comments and docstrings."""
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
        """Return modules of ours that *module* imports anywhere, also under TYPE_CHECKING."""
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
        """The dotted names of the features' packages."""
        folders = {module.folder for module in self.modules}
        return sorted(folder for folder in folders if folder.rpartition(".")[0] == FEATURES)

    def feature_of(self, name: str) -> str | None:
        """Return the feature that the module *name* belongs to."""
        return next((each for each in self.features if is_in(name, each)), None)


def is_in(name: str, package: str) -> bool:
    """Return whether the module *name* is *package*, or lies in it."""
    return name == package or name.startswith(f"{package}.")


def room_of(name: str) -> str:
    """Return the folder of the broker that the module *name* is in; blank outside the broker."""
    above = next((group for group in GROUPS if name.startswith(f"{group}.")), BROKER)
    if not name.startswith(f"{above}."):
        return ""
    return f"{above}.{name.removeprefix(f'{above}.').partition('.')[0]}"
