"""The figures. Each finds its places, as lines that a developer can go to; most count them.

Today's rooms of broker/ are the folders and the modules directly in it. ``house`` means the four
folders and ``rockhopper/``; tests count where that is said.
"""

import ast
import json
import re
import subprocess
import sys
import tomllib
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from tests.house.tree import Module, Tree

# From the ground up; a room stands on the first floor that names it. Rooms of one floor may not
# use each other; what no floor names stands on top.
FLOORS = (
    ("settings", "loop", "observing"),
    ("access", "store"),
    ("listening",),
    ("ha",),
    ("remoting", "tables"),
    ("members", "console"),
    ("pulling",),
    ("later",),
    ("pop", "transactions"),
    ("sending",),
    ("sinks",),
    ("nameserver",),
    ("assembly",),
    ("processors",),
)
FILES_IN_FOLDER_MAX = 16
COMPLEXITY_MAX = 10
PARAMETERS_MAX = 8
# Who may speak of connections, requests and codes: doors, and what is behind them.
DOORS = (
    "broker.remoting",
    "broker.processors",
    "broker.nameserver",
    "broker.hot",
)
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
    arrows = broker_arrows(tree)
    largest, sizes = folder_sizes(tree)
    return [
        Figure("files-in-folder", "files in one folder, processors apart", largest, sizes),
        _counted("arrows", "arrows between the rooms of broker/", _shown(arrows)),
        _counted("arrows-up", "arrows that run up", _shown(arrows_up(arrows))),
        _counted("circles", "rooms and modules in circles", circles(tree, arrows)),
        Figure("lines", "lines of code", house, lines_by_folder(tree)),
        _counted("complex", f"functions over complexity {COMPLEXITY_MAX}", complex_functions(root)),
        _counted("parameters", f"functions with over {PARAMETERS_MAX} parameters", wide(tree)),
        _counted("untested", "modules without a test at their mirrored path", untested(tree)),
        Figure("test-lines", "test lines per source line", round(tests / house, 2), (), True),
        _counted("wire-names", "modules behind the doors that speak remoting", wire_names(tree)),
        _counted("spelt", "places where something is spelt outside of its home", spelt(tree)),
        _counted("private", "private members touched from outside", private_members(tree)),
        Figure("contracts", "floors as import contracts", layers(root), (), True),
    ]


def _counted(name: str, what: str, places: Iterable[str]) -> Figure:
    found = tuple(places)
    return Figure(name, what, len(found), found)


def folder_sizes(tree: Tree) -> tuple[int, tuple[str, ...]]:
    """Files in the largest folder but processors/, and the folders that have too many."""
    sizes = Counter(str(module.path.parent) for module in tree.modules if not module.is_face)
    sizes.pop("broker/processors", None)
    over = [f"{folder}: {n}" for folder, n in sizes.most_common() if n > FILES_IN_FOLDER_MAX]
    return max(sizes.values()), tuple(over)


def lines_by_folder(tree: Tree) -> tuple[str, ...]:
    """Lines of code of each top folder."""
    lines: Counter[str] = Counter()
    for module in tree.modules:
        lines[module.path.parts[0]] += module.code_lines
    return tuple(f"{folder}: {n}" for folder, n in lines.items())


Arrow = tuple[str, str]


def broker_arrows(tree: Tree) -> dict[Arrow, list[str]]:
    """Room to room, with the imports that make the arrow."""
    arrows: dict[Arrow, list[str]] = defaultdict(list)
    for module in tree.modules:
        here = _room(module.name)
        for name in tree.imports(module) if here else ():
            there = _room(name)
            if there and there != here:
                arrows[here, there].append(f"{module.name} -> {name}")
    return arrows


def _room(name: str) -> str:
    parts = name.split(".")
    return parts[1] if parts[0] == "broker" and len(parts) > 1 else ""


def _shown(arrows: dict[Arrow, list[str]]) -> Iterator[str]:
    for (here, there), imports in sorted(arrows.items()):
        yield f"{here} -> {there}: {', '.join(sorted(imports))}"


def arrows_up(arrows: dict[Arrow, list[str]]) -> dict[Arrow, list[str]]:
    """Those that lead to a higher floor, or across one."""
    floor_of = {room: floor for floor, rooms in enumerate(FLOORS) for room in rooms}
    top = len(FLOORS)
    return {
        (here, there): imports
        for (here, there), imports in arrows.items()
        if here in floor_of and floor_of[here] <= floor_of.get(there, top)
    }


def circles(tree: Tree, arrows: dict[Arrow, list[str]]) -> list[str]:
    """Rooms of broker/, and modules anywhere, that import each other in a loop."""
    rooms: dict[str, set[str]] = defaultdict(set)
    for here, there in arrows:
        rooms[here].add(there)
    modules = {
        module.name: tree.imports(module) - {module.name}
        for module in tree.modules
        if not module.is_face
    }
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


def untested(tree: Tree) -> Iterator[str]:
    """Modules whose test file is not at tests/unit/<folder>/test_<name>.py."""
    tests = {module.path for module in tree.tests}
    for module in tree.modules:
        mirrored = Path("tests/unit") / module.path.parent / f"test_{module.path.name}"
        if not module.is_face and mirrored not in tests:
            yield str(module.path)


def off_the_list(found: Sequence[str], listed: Mapping[str, str]) -> list[str]:
    """What is wrong with the *listed* modules without a test of their own, as *found* has them."""
    return [f"{path} has no test at its mirrored path" for path in found if path not in listed] + [
        f"{path} has a test, or is gone: take it out of untested.toml"
        for path in listed
        if path not in found
    ]


def wire_names(tree: Tree) -> Iterator[str]:
    """Modules of broker/ that name what only a door should know."""
    for module in tree.modules:
        if _room(module.name) and not module.name.startswith(DOORS):
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


def layers(root: Path) -> int:
    """Layers that import-linter holds the broker to, in all contracts."""
    contracts = tomllib.loads((root / "pyproject.toml").read_text())["tool"]["importlinter"]
    return sum(len(each.get("layers", ())) for each in contracts["contracts"])
