"""The figures. Each finds its places, as file and line for a developer; most figures count them."""

import ast
import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from tests.house import callbacks, features, imports, lists, names, sizes, traces
from tests.house.tree import DOORS, Module, Tree, room_of

WIRE_NAMES = frozenset({"RemotingConnection", "Request", "RequestCode", "ResponseCode"})
# The classes that decide whether queues and index agree with the log, one for each implementation.
LOG_CHECKS = {
    "recovery and repair": "QueueRepair",
    "scrub": "Scrub",
    "store check": "QueueCheck",
    "audit and rebuild of the pipeline": "AuditWork",
}


@dataclass(frozen=True)
class Figure:
    """One row of the table. ``places`` are the counted places, or the details of the figure."""

    name: str
    what: str
    value: float
    places: tuple[str, ...] = ()


def measure(tree: Tree, compiled: traces.Traced, pure: traces.Traced) -> list[Figure]:
    """Measure all figures; the traces are those of both processes."""
    return [
        *_of_features(tree),
        *_of_lists_and_callbacks(tree),
        *_of_ways(tree, compiled, pure),
        *_of_sizes(tree),
        *_of_names(tree),
        *_of_rules(tree),
        *_reported(tree),
    ]


def _of_features(tree: Tree) -> Iterator[Figure]:
    shares = features.shares(tree)
    declared = tuple(f"{package}: {share} % of all tests" for package, share in shares.items())
    share = max(shares.values(), default=0.0)
    yield Figure("deletable-features", "features that can be deleted", len(declared), declared)
    yield Figure("feature-tests", "largest share of one feature's own tests, %", share, declared)
    yield _counted(
        "feature-importers", "files that import a feature from outside", features.importers(tree)
    )
    yield _counted(
        "stateful-request",
        "files for a request code that keeps state",
        features.files_for_stateful_request(tree),
    )


def _of_lists_and_callbacks(tree: Tree) -> Iterator[Figure]:
    entries = list(lists.find_entries(tree))
    yield _counted("lists", "places that list many things by hand", lists.places(entries))
    yield _counted("list-entries", "entries of lists by hand", lists.made_or_named(entries))
    declared = callbacks.declared(tree)
    yield _counted(
        "callbacks", "callback slots for one listener", callbacks.callbacks(tree, declared)
    )
    yield _counted("listener-lists", "lists of listeners", callbacks.listener_lists(tree, declared))
    yield _counted(
        "questions", "callables handed over to be asked", callbacks.handed_questions(tree, declared)
    )


def _of_ways(tree: Tree, compiled: traces.Traced, pure: traces.Traced) -> Iterator[Figure]:
    for name in ("send", "pull"):
        plain, general = f"plain {name}", f"general {name}"
        served = [compiled[plain], pure[plain], pure[general]]
        yield Figure(f"{name}-ways", f"ways to serve a plain {name}", traces.ways(served))
    yield _counted(
        "send-files",
        "files on the way of a general send",
        traces.files_of(compiled["general send"]),
    )
    yield _counted(
        "recovery-files", "files on the way of a recovery", traces.files_of(compiled["recovery"])
    )
    yield _counted("log-checks", "implementations of log against derived data", log_checks(tree))
    yield _counted(
        "fast-path-imports",
        "import closure of the fast path, files",
        imports.closure_of_fast_path(tree),
    )


def _of_sizes(tree: Tree) -> Iterator[Figure]:
    sized = sizes.attributes(tree)
    large = tuple(f"{place}: {n}" for n, place in sized if n > sizes.ATTRIBUTES_MAX)
    yield Figure("largest-class", "attributes of the largest class", sized[0][0], large[:1])
    yield Figure(
        "large-classes", f"classes over {sizes.ATTRIBUTES_MAX} attributes", len(large), large
    )
    yield _counted(
        "small-modules",
        f"modules under {sizes.SMALL_LINES} lines with one importer",
        sizes.small_modules(tree),
    )
    yield _counted(
        "complex",
        f"functions over complexity {sizes.COMPLEXITY_MAX}",
        sizes.complex_functions(tree),
    )
    yield _counted(
        "parameters",
        f"functions with over {sizes.PARAMETERS_MAX} parameters",
        sizes.wide_functions(tree),
    )
    yield _counted(
        "thin-tests", "tests under a fifth of the module they mirror", sizes.thin_tests(tree)
    )


def _of_names(tree: Tree) -> Iterator[Figure]:
    yield _counted(
        "class-names", "class names defined twice or more", names.repeated_class_names(tree)
    )
    for verb in names.VAGUE_VERBS:
        yield _counted(
            f"verb-{verb}", f"classes with a method {verb}", names.classes_with_method(tree, verb)
        )


def _of_rules(tree: Tree) -> Iterator[Figure]:
    yield _counted("circles", "rooms and modules in circles", circles(tree))
    yield _counted(
        "wire-names", "modules behind the gateways that speak remoting", wire_names(tree)
    )
    yield _counted("spelt", "values spelt outside of their home", spelt(tree))
    yield _counted("private", "private members touched from outside", private_members(tree))


def _reported(tree: Tree) -> Iterator[Figure]:
    house = sum(module.code_lines for module in tree.modules)
    tests = sum(module.code_lines for module in tree.tests)
    yield Figure("lines", "lines of code", house, lines_by_folder(tree))
    yield Figure("test-lines", "test lines per source line", round(tests / house, 2))
    yield _counted(
        "untested",
        f"modules over {sizes.TESTED_LINES} lines without a mirrored test",
        sizes.untested(tree),
    )


def _counted(name: str, what: str, places: Iterable[str]) -> Figure:
    found = tuple(places)
    return Figure(name, what, len(found), found)


def lines_by_folder(tree: Tree) -> tuple[str, ...]:
    """Return the lines of code of each top-level folder."""
    lines: Counter[str] = Counter()
    for module in tree.modules:
        lines[module.path.parts[0]] += module.code_lines
    return tuple(f"{folder}: {n}" for folder, n in lines.items())


def log_checks(tree: Tree) -> Iterator[str]:
    """Yield the known implementations that still exist."""
    for what, name in LOG_CHECKS.items():
        for module in tree.modules:
            yield from (
                f"{what}: {module.path}:{node.lineno} {name}"
                for node in module.classes
                if node.name == name
            )


def circles(tree: Tree) -> list[str]:
    """Return folders of broker/, and modules anywhere, that import each other in a loop."""
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
    """Yield strongly connected components of more than one node (Tarjan), without recursion."""
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


def wire_names(tree: Tree) -> Iterator[str]:
    """Yield modules of broker/ that use names which only a gateway should know."""
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
    """A value that belongs to one module or folder, and its pattern elsewhere."""

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
    """Yield places where a value of SPELLINGS occurs outside its home."""
    for module in tree.modules:
        for spelling in SPELLINGS:
            if not str(module.path).startswith(spelling.home):
                for found in re.finditer(spelling.pattern, module.text):
                    line = module.text.count("\n", 0, found.start()) + 1
                    yield f"{module.path}:{line} {spelling.what}"


def private_members(tree: Tree) -> Iterator[str]:
    """Yield uses of ``other._member`` defined in another module; tests included."""
    for module in (*tree.modules, *tree.tests):
        if not _PRIVATE_OF_OTHERS.search(module.text):
            continue
        own = set(_defined(module))
        for node in module.nodes:
            if not isinstance(node, ast.Attribute) or not re.match(r"_[a-z]", node.attr):
                continue
            is_own = isinstance(node.value, ast.Name) and node.value.id in ("self", "cls")
            if not is_own and node.attr not in own and node.attr not in _PUBLIC_DESPITE_ALL:
                yield f"{module.path}:{node.lineno} {node.attr}"


_PRIVATE_OF_OTHERS = re.compile(r"(?<!\bself)(?<!\bcls)\._[a-z]")
# Members of namedtuples and of the standard library, which are documented under these names.
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
