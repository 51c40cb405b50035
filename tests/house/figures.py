"""The figures. Each finds its places, as lines that a developer can go to; most count them."""

import ast
import json
import re
import subprocess
import sys
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from tests.house.tree import DOORS, Module, Tree, room_of

COMPLEXITY_MAX = 10
PARAMETERS_MAX = 8
WIRE_NAMES = frozenset({"Connection", "Request", "RequestCode", "ResponseCode"})


@dataclass(frozen=True)
class Figure:
    """One row of the table. ``places`` are what was counted, or what makes the figure."""

    name: str
    what: str
    value: float
    places: tuple[str, ...] = ()
    more_is_better: bool = False


def measure(tree: Tree, root: Path) -> list[Figure]:
    """All figures that are measured at each run."""
    house = sum(module.code_lines for module in tree.modules)
    tests = sum(module.code_lines for module in tree.tests)
    return [
        _counted("circles", "rooms and modules in circles", circles(tree)),
        _counted("complex", f"functions over complexity {COMPLEXITY_MAX}", complex_functions(root)),
        _counted("parameters", f"functions with over {PARAMETERS_MAX} parameters", wide(tree)),
        _counted("wire-names", "modules behind the doors that speak remoting", wire_names(tree)),
        _counted("spelt", "places where something is spelt outside of its home", spelt(tree)),
        _counted("private", "private members touched from outside", private_members(tree)),
        Figure("lines", "lines of code", house, lines_by_folder(tree)),
        Figure("test-lines", "test lines per source line", round(tests / house, 2)),
    ]


def _counted(name: str, what: str, places: Iterable[str]) -> Figure:
    found = tuple(places)
    return Figure(name, what, len(found), found)


def lines_by_folder(tree: Tree) -> tuple[str, ...]:
    """Lines of code of each top folder."""
    lines: Counter[str] = Counter()
    for module in tree.modules:
        lines[module.path.parts[0]] += module.code_lines
    return tuple(f"{folder}: {n}" for folder, n in lines.items())


def circles(tree: Tree) -> list[str]:
    """Rooms of broker/, and modules anywhere, that import each other in a loop."""
    modules = {
        module.name: tree.imports(module) - {module.name}
        for module in tree.modules
        if not module.is_face
    }
    rooms: dict[str, set[str]] = defaultdict(set)
    for name, imported in modules.items():
        if here := room_of(name):
            rooms[here] |= {room_of(each) for each in imported} - {here, ""}
    return [" <-> ".join(sorted(loop)) for graph in (rooms, modules) for loop in _loops(graph)]


def _loops(graph: dict[str, set[str]]) -> Iterator[set[str]]:
    """Strongly connected parts of more than one node (Tarjan), without recursion."""
    index: dict[str, int] = {}
    low: dict[str, int] = {}
    open_nodes: list[str] = []
    for start in list(graph):
        if start in index:
            continue
        work = [(start, iter(sorted(graph[start])))]
        index[start] = low[start] = len(index)
        open_nodes.append(start)
        while work:
            node, following = work[-1]
            for each in following:
                if each not in index:
                    index[each] = low[each] = len(index)
                    open_nodes.append(each)
                    work.append((each, iter(sorted(graph.get(each, ())))))
                    break
                if each in open_nodes:
                    low[node] = min(low[node], index[each])
            else:
                work.pop()
                if work:
                    low[work[-1][0]] = min(low[work[-1][0]], low[node])
                if low[node] == index[node]:
                    at = open_nodes.index(node)
                    loop = set(open_nodes[at:])
                    del open_nodes[at:]
                    if len(loop) > 1:
                        yield loop


def complex_functions(root: Path) -> list[str]:
    """By ruff's C901."""
    command = [
        sys.executable,
        "-m",
        "ruff",
        "check",
        "--isolated",
        "--select",
        "C901",
        "--no-cache",
    ]
    command += ["--config", f"lint.mccabe.max-complexity={COMPLEXITY_MAX}", "--output-format=json"]
    found = subprocess.run([*command, "rockhopper"], cwd=root, capture_output=True, check=False)
    return [
        f"{Path(each['filename']).relative_to(root)}:{each['location']['row']} {each['message']}"
        for each in json.loads(found.stdout)
    ]


def wide(tree: Tree) -> Iterator[str]:
    """Functions with many parameters, self and cls apart."""
    for module in tree.modules:
        for node in module.nodes:
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                arguments = node.args
                named = [*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs]
                count = len([each for each in named if each.arg not in ("self", "cls")])
                if count > PARAMETERS_MAX:
                    yield f"{module.path}:{node.lineno} {node.name}: {count}"


def wire_names(tree: Tree) -> Iterator[str]:
    """Modules of broker/ that name what only a door should know."""
    for module in tree.modules:
        if room_of(module.name) and DOORS.isdisjoint(module.name.split(".")):
            names = {
                alias.name
                for node in module.nodes
                if isinstance(node, ast.ImportFrom)
                for alias in node.names
            }
            if found := sorted(names & WIRE_NAMES):
                yield f"{module.path}: {', '.join(found)}"


@dataclass(frozen=True)
class Spelling:
    """Something with one home: what it looks like elsewhere."""

    what: str
    home: str
    pattern: str


SPELLINGS = (
    Spelling("the delay ladder", "protocol/", r"\b1s 5s 10s\b"),
    Spelling("a default topic's name", "protocol/names.py", r"[\"'](?:TBW102|TOOLS_CONSUMER)[\"']"),
    Spelling(
        "a system topic's name",
        "protocol/names.py",
        r"[\"'](?:SCHEDULE_TOPIC_XXXX|RMQ_SYS_\w+)[\"']",
    ),
    Spelling(
        "a property's name",
        "protocol/properties.py",
        r"[\"'](?:UNIQ_KEY|REAL_TOPIC|REAL_QID|DELAY)[\"']",
    ),
    Spelling("PERM bits", "protocol/", r"\bPERM_\w+ *= *\d|\bperm *& *[0-9]"),
    Spelling("PULL_FLAG bits", "protocol/sys_flags.py", r"PULL_FLAG_\w+ *= *(?:0x)?\d"),
    Spelling(
        "an offset of the record's head",
        "protocol/store/",
        r"_(?:OFFSET|AT|POSITION)\w* *= *(?:4|20|28|36|84|88)\b(?!\d)",
    ),
)


def spelt(tree: Tree) -> Iterator[str]:
    """Values that stand in the code outside of the module, or the folder, that is their home."""
    for module in tree.modules:
        path = str(module.path)
        elsewhere = [each for each in SPELLINGS if not path.startswith(each.home)]
        for number, line in enumerate(module.text.splitlines(), 1):
            for spelling in elsewhere:
                if re.search(spelling.pattern, line):
                    yield f"{module.path}:{number} {spelling.what}"


def private_members(tree: Tree) -> Iterator[str]:
    """``other._member``, where the member is not defined in the same module; tests included."""
    for module in (*tree.modules, *tree.tests):
        own = set(_defined(module))
        for node in module.nodes:
            if not isinstance(node, ast.Attribute) or not re.match(r"_[a-z]", node.attr):
                continue
            is_own = isinstance(node.value, ast.Name) and node.value.id in ("self", "cls")
            if not is_own and node.attr not in own and node.attr not in _PUBLIC_DESPITE_ALL:
                yield f"{module.path}:{node.lineno} {node.attr}"


# Of namedtuples and of the standard library, documented under these names.
_PUBLIC_DESPITE_ALL = frozenset(
    {"_replace", "_asdict", "_make", "_fields", "_exit", "_getframe", "_jvm", "_jsc"}
)


def _defined(module: Module) -> Iterator[str]:
    for node in module.nodes:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            yield node.name
        elif isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store):
            yield node.attr
        elif isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
            yield node.target.id
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            yield node.id
        elif isinstance(node, ast.Constant) and isinstance(node.value, str):
            yield node.value  # __slots__
