"""Build the compiled functions for the fuzzer and run it: ``python -m tests.fuzz``.

What it finds interesting is kept in ``build/fuzz/corpus``, so that a run goes on where the last one
ended; an input that fails is written beside it, and ``--input`` runs one again. ``--save`` adds the
run to a file: how long it was, under which sanitizers, and how many inputs failed.
"""

import json
import os
import re
import resource
import shutil
import subprocess
import sys
import sysconfig
import time
import tomllib
from pathlib import Path
from typing import Any

import click

from benchmarks.origin import here_and_now
from tests.fuzz.seeds import SEEDS

ROOT = Path(__file__).parents[2]
BUILD = ROOT / "build" / "fuzz"
CORPUS = BUILD / "corpus"
SANITIZERS = "fuzzer,address,undefined"
SAME = ("commit", "is_dirty", "python", "cpu_model", "sanitizers")
SUMMED = ("runs", "executions", "wall_s", "cpu_s", "findings")
INTERRUPTED = 72
"""The exit code of libFuzzer that got SIGINT or SIGTERM before its time was over."""
EXECUTIONS = re.compile(r"^stat::number_of_executed_units: +(\d+)$", re.MULTILINE)


@click.command()
@click.option("--seconds", default=3600, show_default=True, help="How long.")
@click.option("--input", "one", type=click.Path(exists=True), help="Run one input again.")
@click.option(
    "--save", type=click.Path(dir_okay=False, path_type=Path), help="Add the run to FILE."
)
def main(seconds: int, one: str | None, save: Path | None) -> None:
    """Fuzz the compiled functions under sanitizers for addresses and undefined behaviour."""
    if shutil.which("clang") is None:
        raise click.ClickException("clang is needed, with libFuzzer: on Debian, apt install clang")
    fuzzer = build()
    CORPUS.mkdir(parents=True, exist_ok=True)
    for number, seed in enumerate(SEEDS):
        (CORPUS / f"seed-{number}").write_bytes(seed)
    options = [one] if one else [str(CORPUS), f"-max_total_time={seconds}"]
    origin, begin_s, cpu_begin_s = here_and_now(""), time.monotonic(), children_cpu_s()
    output, code = run([str(fuzzer), *options])
    if save is not None:
        executions = EXECUTIONS.search(output)
        add_run(
            save,
            {
                "date": origin.date,
                "until": here_and_now("").date,
                "commit": origin.commit,
                "is_dirty": origin.is_dirty,
                "python": origin.python,
                "cpu_model": origin.cpu_model,
                "sanitizers": SANITIZERS,
                "runs": 1,
                "executions": int(executions[1]) if executions else 0,
                "wall_s": round(time.monotonic() - begin_s),
                "cpu_s": round(children_cpu_s() - cpu_begin_s),
                "findings": count_findings(code),
            },
        )
    sys.exit(code)


def count_findings(code: int) -> int:
    """How many inputs failed in a run that ended with this exit code; the first one ends it."""
    return int(code not in (0, INTERRUPTED))


def children_cpu_s() -> float:
    """CPU time of the processes that this one has waited for."""
    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    return usage.ru_utime + usage.ru_stime


def run(command: list[str]) -> tuple[str, int]:
    """Run the fuzzer, show what it writes, and return that with its exit code."""
    lines: list[str] = []
    with subprocess.Popen(
        [
            *command,
            *("-max_len=4096", "-timeout=60", "-rss_limit_mb=4096", "-print_final_stats=1"),
            f"-artifact_prefix={BUILD}/",
        ],
        env=environment(),
        cwd=ROOT,
        stderr=subprocess.PIPE,
        text=True,
        errors="replace",
    ) as fuzzing:
        assert fuzzing.stderr is not None
        for line in fuzzing.stderr:
            sys.stderr.write(line)
            lines.append(line)
    return "".join(lines), fuzzing.returncode


def add_run(path: Path, run: dict[str, Any]) -> None:
    """Add *run* to those in the file *path*: runs of one commit on one machine are summed up."""
    runs = json.loads(path.read_text()) if path.exists() else []
    same = [one for one in runs if all(one[name] == run[name] for name in SAME)]
    if same:
        for name in SUMMED:
            same[0][name] += run[name]
        same[0]["until"] = run["until"]
    else:
        runs.append(run)
    path.write_text(json.dumps(runs, indent=1) + "\n")


def list_modules(names: list[str]) -> str:
    """Return the header from which the harness takes the modules."""
    return "".join(f'MODULE({name.rpartition(".")[2]}, "{name}")\n' for name in names)


def build() -> Path:
    """Compile the sources of all extension modules, and the harness, into one program."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    modules = project["tool"]["setuptools"]["ext-modules"]
    sources = sorted({source for module in modules for source in module["sources"]})
    BUILD.mkdir(parents=True, exist_ok=True)
    (BUILD / "modules.h").write_text(list_modules([module["name"] for module in modules]))
    fuzzer = BUILD / "fuzzer"
    version, library = sysconfig.get_config_var("VERSION"), sysconfig.get_config_var("LIBDIR")
    subprocess.run(
        [
            *("clang", "-g", "-O1", f"-fsanitize={SANITIZERS}", "-fno-sanitize-recover=all"),
            *(f"-I{sysconfig.get_path('include')}", f"-I{BUILD}", "tests/fuzz/harness.c", *sources),
            *(f"-L{library}", f"-Wl,-rpath,{library}", f"-lpython{version}"),
            *("-o", str(fuzzer)),
        ],
        check=True,
        cwd=ROOT,
    )
    return fuzzer


def environment() -> dict[str, str]:
    """So that each piece of memory is its own, and Python's modules are found."""
    paths = [str(ROOT), *(path for path in sys.path if path.endswith("site-packages"))]
    return os.environ | {
        "PYTHONMALLOC": "malloc",
        "PYTHONPATH": os.pathsep.join(paths),
        "PYTHONHOME": sys.base_prefix,
        "ROCKHOPPER_PURE_PYTHON": "1",
        # Python keeps its types and modules to the end.
        "ASAN_OPTIONS": "detect_leaks=0:abort_on_error=1",
    }


if __name__ == "__main__":
    main()
