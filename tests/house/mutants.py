"""A mutation sample: ``make mutants``, or ``python -m tests.house.mutants``.

It draws random mutants of broker/ and client/ (the same seed gives the same ones) and makes each in
a copy of the checkout. It runs the tests that execute the changed line, those of its own module
first, up to ``TESTS_MAX``. The mutant is killed if a test fails or hangs; a mutant that no test
executes survives.

A mutant is an inverted comparison, operator or condition, a number increased by one, True for
False, a lost return value, or a removed call. Code that no test should watch is excluded: constants
of modules, annotations, docstrings, texts, and log calls.

Coverage first measures which tests execute a line; the result is cached for the commit. Results are
appended to a file of the commit as they arrive; an interrupted run continues with the next mutant.
A run of all ``COUNT`` mutants writes ``RECORD``, which is committed.
"""

import ast
import json
import os
import random
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path
from queue import SimpleQueue

import click

from tests.house.tree import Module, Tree

ROOT = Path(__file__).parents[2]
BUILD = ROOT / "build" / "mutants"
TESTS = ("tests/unit", "tests/property", "tests/crash", "tests/integration", "tests/extras")
TESTS_MAX = 300
COUNT = 300
NOTICED = ("killed", "hangs")
NOTICED_LEAST = 0.9
RECORD = ROOT / "tests/house/results/mutants.json"
HANG_S = 300
"""A bound on hangs; tests are not judged by time.

Whole runs of the chosen tests take a tenth of it.
"""

_TURNED: dict[type[ast.AST], str] = {
    ast.Lt: "<=",
    ast.LtE: "<",
    ast.Gt: ">=",
    ast.GtE: ">",
    ast.Eq: "!=",
    ast.NotEq: "==",
    ast.Is: "is not",
    ast.IsNot: "is",
    ast.In: "not in",
    ast.NotIn: "in",
    ast.Add: "-",
    ast.Sub: "+",
    ast.Mult: "//",
    ast.FloorDiv: "*",
    ast.LShift: ">>",
    ast.RShift: "<<",
    ast.BitAnd: "|",
    ast.BitOr: "&",
}


@dataclass(frozen=True)
class Mutant:
    """One change: the bytes ``start`` to ``end`` of a file become ``text``."""

    path: str
    line: int
    start: int
    end: int
    text: str

    def apply(self, source: bytes) -> bytes:
        """Return the changed file."""
        return source[: self.start] + self.text.encode() + source[self.end :]


class _Cutter:
    """Makes mutants of one module from its syntax nodes."""

    def __init__(self, module: Module) -> None:
        self._path = str(module.path)
        self._source = module.text.encode()
        self._starts = [0]
        for line in self._source.splitlines(keepends=True):
            self._starts.append(self._starts[-1] + len(line))

    def _ends(self, node: ast.expr | ast.stmt) -> tuple[int, int]:
        start = self._starts[node.lineno - 1] + node.col_offset
        return start, self._starts[(node.end_lineno or 1) - 1] + (node.end_col_offset or 0)

    def text(self, node: ast.expr | ast.stmt) -> str:
        start, end = self._ends(node)
        return self._source[start:end].decode()

    def instead(self, node: ast.expr | ast.stmt, new: str) -> Mutant:
        return Mutant(self._path, node.lineno, *self._ends(node), new)

    def between(self, left: ast.expr, right: ast.expr, new: str) -> Mutant:
        start, end = self._ends(left)[1], self._ends(right)[0]
        old = self._source[start:end].decode()
        # Parentheses around an operand stay in place.
        closing = old[: len(old) - len(old.lstrip(" )"))]
        opening = old[len(old.rstrip(" (\n")) :]
        line = left.end_lineno or left.lineno
        return Mutant(self._path, line, start, end, f"{closing} {new} {opening}")


def mutants_of(module: Module) -> Iterator[Mutant]:
    """Yield all mutants of a module, in text order."""
    cutter = _Cutter(module)
    for node in _code(module.tree):
        yield from _of_operators(node, cutter)
        yield from _of_others(node, cutter)


def _of_operators(node: ast.AST, cutter: _Cutter) -> Iterator[Mutant]:
    match node:
        case ast.Compare(left=left, ops=[op], comparators=[right]):
            yield cutter.between(left, right, _TURNED[type(op)])
        case ast.BinOp(left=left, op=op, right=right) if type(op) in _TURNED:
            yield cutter.between(left, right, _TURNED[type(op)])
        case ast.BoolOp(op=op, values=[left, right, *_]):
            yield cutter.between(left, right, "or" if isinstance(op, ast.And) else "and")
        case ast.UnaryOp(op=ast.Not(), operand=operand):
            yield cutter.instead(node, f"({cutter.text(operand)})")


def _of_others(node: ast.AST, cutter: _Cutter) -> Iterator[Mutant]:
    match node:
        case ast.If(test=test) | ast.While(test=test) | ast.IfExp(test=test):
            yield cutter.instead(test, f"(not ({cutter.text(test)}))")
        case ast.Constant(value=bool() as value):
            yield cutter.instead(node, str(not value))
        case ast.Constant(value=int() as value):
            yield cutter.instead(node, str(value + 1))
        case ast.Return(value=ast.expr() as value) if not isinstance(value, ast.Constant):
            yield cutter.instead(node, "return None")
        case ast.Expr(value=ast.Call() | ast.Await(value=ast.Call())):
            yield cutter.instead(node, "pass")


def _code(node: ast.AST, *, in_function: bool = False) -> Iterator[ast.AST]:
    """Yield the nodes that run when functions run, except log calls."""
    for name, value in ast.iter_fields(node):
        if name in ("annotation", "returns", "decorator_list", "exc", "msg"):
            continue
        if isinstance(node, ast.arguments | ast.JoinedStr):
            return
        for child in value if isinstance(value, list) else [value]:
            if not isinstance(child, ast.AST) or _is_of_the_log(child):
                continue
            inside = in_function or isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef)
            if in_function:
                yield child
            yield from _code(child, in_function=inside)


def _is_of_the_log(node: ast.AST) -> bool:
    call = node.value if isinstance(node, ast.Expr) else node
    return (
        isinstance(call, ast.Call)
        and isinstance(call.func, ast.Attribute)
        and isinstance(call.func.value, ast.Name)
        and call.func.value.id == "log"
    )


def sample(count: int, seed: int) -> list[Mutant]:
    """Return *count* mutants, all equally likely."""
    every = [
        mutant
        for module in Tree(ROOT).modules
        if module.path.parts[0] in ("broker", "client") and "testing" not in module.path.parts
        for mutant in mutants_of(module)
    ]
    return random.Random(seed).sample(every, count)


class Contexts:
    """The tests that execute each line; a pytest plug-in measures them, see contexts.py."""

    def __init__(self, commit: str) -> None:
        import coverage  # installed by make mutants alone

        self._file = BUILD / f"coverage-{commit}"
        if not self._file.exists():
            click.echo("measuring which tests execute which line")
            command = [sys.executable, "-m", "coverage", "run", f"--data-file={self._file}.part"]
            command += ["-m", "pytest", "-q", "-p", "tests.house.contexts", "-p", "no:xdist"]
            subprocess.run([*command, "-p", "no:cacheprovider", *TESTS], cwd=ROOT, check=True)
            Path(f"{self._file}.part").rename(self._file)
        self._data = coverage.CoverageData(str(self._file))
        self._data.read()
        self._measured = {
            str(Path(path).relative_to(ROOT)).removeprefix("rockhopper/"): path
            for path in self._data.measured_files()
        }

    def tests(self, mutant: Mutant) -> list[str]:
        """Return the tests of the module's own test file first, then others in random order."""
        measured = self._measured.get(mutant.path)
        if measured is None:
            return []
        by_line = self._data.contexts_by_lineno(measured)
        found = sorted({test for test in by_line.get(mutant.line, ()) if test})
        own = f"tests/unit/{Path(mutant.path).parent}/test_{Path(mutant.path).name}"
        mirrored = [test for test in found if test.startswith(own)]
        others = [test for test in found if not test.startswith(own)]
        random.Random(mutant.start).shuffle(others)
        return [*mirrored, *others][:TESTS_MAX]


def _copy(number: int) -> Path:
    """Copy the committed and changed files of the checkout, and the compiled extension."""
    copy = BUILD / f"copy-{number}"
    shutil.rmtree(copy, ignore_errors=True)
    listed = subprocess.check_output(["git", "ls-files", "-z"], cwd=ROOT, text=True)
    extensions = [str(path.relative_to(ROOT)) for path in (ROOT / "rockhopper").rglob("*.so")]
    for name in [*listed.split("\0"), *extensions]:
        source = ROOT / name
        if name and (source.exists() or source.is_symlink()):
            (copy / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(source, copy / name, follow_symlinks=False)
    return copy


def outcome(mutant: Mutant, tests: list[str], copy: Path) -> str:
    """Return ``killed``, ``hangs``, ``survived`` or ``never executed``."""
    if not tests:
        return "never executed"
    file = copy / mutant.path
    source = file.read_bytes()
    file.write_bytes(mutant.apply(source))
    (copy / "chosen.txt").write_text("\n".join(tests))
    command = [sys.executable, "-B", "-m", "pytest", "-q", "-x", "-p", "no:xdist"]
    command += ["-p", "no:cacheprovider", "@chosen.txt"]
    process = subprocess.Popen(
        command,
        cwd=copy,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )
    try:
        return "survived" if process.wait(HANG_S) == 0 else "killed"
    except subprocess.TimeoutExpired:
        return "hangs"
    finally:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()
        file.write_bytes(source)


def write_record(commit: str, seed: int, outcomes: dict[Mutant, str]) -> None:
    """Write how many mutants were noticed, and which were not."""
    missed = [
        {"place": f"{mutant.path}:{mutant.line}", "becomes": mutant.text.strip(), "outcome": found}
        for mutant, found in outcomes.items()
        if found not in NOTICED
    ]
    record = {
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
        "commit": commit,
        "seed": seed,
        "drawn": len(outcomes),
        "noticed": len(outcomes) - len(missed),
        "missed": missed,
    }
    RECORD.parent.mkdir(exist_ok=True)
    RECORD.write_text(json.dumps(record, indent=1, ensure_ascii=False) + "\n")


def _commit() -> str:
    return subprocess.check_output(["git", "rev-parse", "HEAD"], cwd=ROOT, text=True).strip()


@click.command()
@click.option("--count", default=COUNT, show_default=True, help="How many mutants to draw.")
@click.option("--seed", default=1, show_default=True, help="Which ones.")
@click.option("--jobs", default=os.cpu_count() or 1, show_default=True, help="How many at once.")
def main(count: int, seed: int, jobs: int) -> None:
    """Make mutants and see how many the tests notice; exit 1 below 90 %."""
    BUILD.mkdir(parents=True, exist_ok=True)
    commit = _commit()
    contexts = Contexts(commit)
    results = BUILD / f"results-{seed}-{commit}.jsonl"
    known: dict[Mutant, str] = {}
    if results.exists():
        for line in results.read_text().splitlines():
            row = json.loads(line)
            known[Mutant(**row["mutant"])] = row["outcome"]
    drawn = sample(count, seed)
    copies: SimpleQueue[Path] = SimpleQueue()
    for number in range(jobs):
        copies.put(_copy(number))

    def judge(mutant: Mutant) -> str:
        if mutant in known:
            return known[mutant]
        copy = copies.get()
        try:
            found = outcome(mutant, contexts.tests(mutant), copy)
        finally:
            copies.put(copy)
        with results.open("a") as file:
            file.write(json.dumps({"mutant": asdict(mutant), "outcome": found}) + "\n")
        return found

    with ThreadPoolExecutor(jobs) as pool:
        outcomes = dict(zip(drawn, pool.map(judge, drawn), strict=True))
    missed = {mutant: found for mutant, found in outcomes.items() if found not in NOTICED}
    for mutant, found in missed.items():
        click.echo(f"{mutant.path}:{mutant.line} {found}: {mutant.text.strip()[:60]}")
    noticed = count - len(missed)
    click.echo(f"{noticed} of {count} mutants noticed, {noticed / count:.0%}")
    if count >= COUNT:
        write_record(commit, seed, outcomes)
    sys.exit(noticed < NOTICED_LEAST * count)


if __name__ == "__main__":
    main()
