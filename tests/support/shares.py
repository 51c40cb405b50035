"""Processes that share the modules of a run: ``pytest --shares 2``.

Each process collects and runs its own modules only. With xdist, each worker collects all tests,
and each result of a test travels to a third process: a fifth of the CPU time of ``make test``. But
shares are fixed when the run starts, so they suit many short tests, and xdist few long ones.

Example: ``pytest --shares 2 tests/unit`` starts ``pytest --shares 2 tests/unit --share 1``, runs
share 0 itself, then prints what the other process has printed, and fails if either has failed.
With ``--share 0`` it runs that share alone.
"""

import subprocess
import sys
import tempfile
from collections import defaultdict
from collections.abc import Generator, Iterable
from pathlib import Path
from typing import IO, Any

import pytest

SPARK = "the session of Spark"
# A test in Spark costs about as much as five others of its length.
_WEIGHT_IN_SPARK = 5


def add_options(parser: pytest.Parser) -> None:
    """Add the options to *parser*."""
    parser.addoption(
        "--shares", type=int, default=1, help="run so many processes, each its modules"
    )
    parser.addoption("--share", type=int, help="run this share alone; they count from 0 on")


def group(module: str) -> str:
    """Return the group of *module*, a path: one process runs all modules of a group.

    One has the session of Spark, and one the tests of pages, which parse all sources.
    """
    if module.startswith("tests/unit/docs/"):
        return "the pages"
    return SPARK if module.endswith("_in_spark.py") else module


def deal(sizes: Iterable[tuple[str, int]], count: int) -> dict[str, int]:
    """Return the share of each group: the largest first, each to the share that has least."""
    weights: dict[str, int] = defaultdict(int)
    for module, size in sizes:
        name = group(module)
        weights[name] += size * (_WEIGHT_IN_SPARK if name == SPARK else 1)
    loads = [0] * count
    shares = {}
    for name, weight in sorted(weights.items(), key=lambda item: (-item[1], item[0])):
        shares[name] = least = loads.index(min(loads))
        loads[least] += weight
    return shares


class Share:
    """A pytest plugin: ignores the modules of the other shares, and runs their processes."""

    def __init__(self, config: pytest.Config) -> None:
        self._root = config.rootpath
        only: int | None = config.option.share
        self._number = only or 0
        count: int = config.option.shares
        self._shares = deal(self._sizes(config.args), count)
        others = range(1, count) if only is None else ()
        arguments = config.invocation_params.args
        self._others = [_start([*arguments, "--share", str(number)]) for number in others]

    def _sizes(self, arguments: list[str]) -> Iterable[tuple[str, int]]:
        for argument in arguments:
            path = self._root / argument.partition("::")[0]
            for module in path.rglob("test_*.py") if path.is_dir() else [path]:
                yield str(module.relative_to(self._root)), module.stat().st_size

    def pytest_ignore_collect(self, collection_path: Path) -> bool | None:
        """Ignore modules of other shares."""
        if collection_path.suffix != ".py" or not collection_path.is_relative_to(self._root):
            return None
        name = group(str(collection_path.relative_to(self._root)))
        return self._shares.get(name, self._number) != self._number or None

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_sessionfinish(self, session: pytest.Session) -> Generator[None, Any, None]:
        """After the report of this share, print those of the others; one failure fails all."""
        yield
        results = [int(session.exitstatus)]
        for process, output in self._others:
            results.append(process.wait())
            output.seek(0)
            print(f"\n{output.read()}", end="", flush=True)
        session.exitstatus = worst(results)


def _start(arguments: list[str]) -> tuple[subprocess.Popen[str], IO[str]]:
    output = tempfile.TemporaryFile("w+")  # noqa: SIM115 -- open until the process has ended
    command = [sys.executable, "-m", "pytest", *arguments]
    return subprocess.Popen(command, stdout=output, stderr=subprocess.STDOUT, text=True), output


def worst(results: list[int]) -> int:
    """Return the exit code for processes with *results*; one that had no tests has not failed."""
    ran = [result for result in results if result != pytest.ExitCode.NO_TESTS_COLLECTED]
    return next((result for result in ran if result), 0) if ran else results[0]
