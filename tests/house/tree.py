"""The sources, parsed once: modules by their dotted names, below their folders at the top."""

import ast
import io
import tokenize
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

_NO_CODE = frozenset(
    {
        tokenize.COMMENT,
        tokenize.NL,
        tokenize.NEWLINE,
        tokenize.INDENT,
        tokenize.DEDENT,
        tokenize.ENDMARKER,
    }
)
PARTS = ("broker", "client", "pipeline", "protocol")


@dataclass(frozen=True)
class Module:
    """One file. *path* is from *root*: the package for its parts, the checkout for all others."""

    root: Path
    path: Path

    @property
    def name(self) -> str:
        """Without ``rockhopper.``: ``broker.store.flush``; a package by its folder's name."""
        return ".".join(self.path.with_suffix("").parts).removesuffix(".__init__")

    @cached_property
    def text(self) -> str:
        """The source."""
        return (self.root / self.path).read_text(encoding="utf-8")

    @cached_property
    def tree(self) -> ast.Module:
        """What it parses to."""
        return ast.parse(self.text)

    @cached_property
    def nodes(self) -> list[ast.AST]:
        """All nodes of ``tree``."""
        return list(ast.walk(self.tree))

    @property
    def is_face(self) -> bool:
        """A package's ``__init__``, which only hands names on."""
        return self.path.name in ("__init__.py", "__main__.py")

    @cached_property
    def code_lines(self) -> int:
        """Lines that hold code: no blank ones, no comments, no docstrings."""
        lines: set[int] = set()
        docstrings = self._docstring_lines
        for token in tokenize.generate_tokens(io.StringIO(self.text).readline):
            if token.type not in _NO_CODE and token.start[0] not in docstrings:
                lines.update(range(token.start[0], token.end[0] + 1))
        return len(lines)

    @property
    def _docstring_lines(self) -> set[int]:
        return {
            line
            for node in self.nodes
            if isinstance(node, ast.Expr)
            and isinstance(node.value, ast.Constant)
            and isinstance(node.value.value, str)
            for line in range(node.lineno, (node.end_lineno or node.lineno) + 1)
        }


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
        self.names = {module.name for module in self.modules}

    def imports(self, module: Module) -> set[str]:
        """Modules of ours that *module* imports, wherever in it, under TYPE_CHECKING too."""
        found: set[str] = set()
        for node in module.nodes:
            if isinstance(node, ast.ImportFrom) and node.module and not node.level:
                base = node.module.removeprefix("rockhopper.")
                for alias in node.names:
                    inner = f"{base}.{alias.name}"
                    found.add(inner if inner in self.names else base)
            elif isinstance(node, ast.Import):
                found.update(alias.name.removeprefix("rockhopper.") for alias in node.names)
        return found & self.names
