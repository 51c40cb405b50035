"""``python -m tests.chaos``: run faults until the time or the rounds are used up; print the table.

Run by root, the suite restarts itself in its own process and mount namespaces. When it ends, for
any reason, the kernel kills all its brokers and unmounts all its disks.
"""

import asyncio
import contextlib
import dataclasses
import functools
import logging
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import click
from rich.console import Console

from tests.chaos.outcome import Outcome, ResultsFile, print_table
from tests.chaos.registry import FAULTS, Fault
from tests.chaos.replicas.clients import java
from tests.chaos.replicas.nemesis.scripts import SCRIPTS
from tests.chaos.replicas.network import can_cut
from tests.chaos.replicas.rounds import rounds as replica_rounds
from tests.chaos.replicas.rounds import script_rounds
from tests.chaos.watchdog import Watchdog
from tests.chaos.workshop import Workshop, missing, run
from tests.support.process_tree import descendants

INSIDE = "ROCKHOPPER_CHAOS_INSIDE"
SCRIPTED, USED_BY_JAVA = "replica-scripts", "replicas"
SEED = int(os.environ.get("CHAOS_SEED", "1"))
BUDGET_S = float(os.environ.get("CHAOS_BUDGET_S", "120"))

console = Console(width=None if sys.stdout.isatty() else 140)


@click.command()
@click.option("--fault", "names", multiple=True, type=click.Choice([one.name for one in FAULTS]))
@click.option("--seed", default=SEED, show_default=True, help="of the first round")
@click.option("--rounds", type=int, help="of each fault, instead of a budget of time")
@click.option("--budget-s", default=BUDGET_S, show_default=True, help="for all faults together")
@click.option("--long", "is_long", is_flag=True, help="as many rounds as the long form has")
@click.option(
    "--script", "scripts", multiple=True, type=click.Choice(list(SCRIPTS)), help="of replica sets"
)
@click.option(
    "--java/--no-java",
    "has_java",
    default=None,
    help="RocketMQ's own clients among those of replica sets; on in the long form",
)
@click.option("--results", type=click.Path(path_type=Path), help="a file to go on with")
def main(
    names: tuple[str, ...],
    seed: int,
    rounds: int | None,
    budget_s: float,
    is_long: bool,
    scripts: tuple[str, ...],
    has_java: bool | None,
    results: Path | None,
) -> None:
    """Make faults, and hold what is left of the messages against what was acknowledged."""
    if scripts:
        names = (*names, SCRIPTED)
    chosen = [one for one in FAULTS if one.name in names or not (names or one.is_asked_for)]
    _enter_namespaces(has_network=any(one.has_hosts for one in chosen) and can_cut())
    # Brokers are stopped on purpose, so the client's warnings are noise.
    logging.getLogger("rockhopper.client").setLevel(logging.CRITICAL)
    chosen = [_only(scripts, one) if one.name == SCRIPTED else one for one in chosen]
    lacking = {one.name: missing(one.needs) for one in chosen}
    skipped = {name: f"needs {what}" for name, what in lacking.items() if what}
    for name, reason in skipped.items():
        console.print(f"[bold yellow]SKIPPED {name}: {reason}[/]")
    chosen = [one for one in chosen if one.name not in skipped]
    in_part = {
        f"{one.name}: {part}": f"needs {what}"
        for one in chosen
        for part, what in one.lacking().items()
    }
    if is_long if has_java is None else has_java:
        chosen, without_java = _with_java(chosen)
        in_part |= without_java
    for part, reason in in_part.items():
        console.print(f"[bold yellow]NOT MADE in {part}: {reason}[/]")
    skipped |= in_part
    kept = ResultsFile(results)
    is_interrupted = True
    with contextlib.suppress(KeyboardInterrupt), Workshop.opened() as workshop:
        shares = sum(one.share for one in chosen)
        for one in chosen:
            wanted = one.long_rounds if is_long and rounds is None else rounds
            wanted = 1 if one.is_made_once else wanted
            end_s = time.monotonic() + budget_s * one.share / shares
            asyncio.run(_run(one, workshop, kept, seed, wanted, end_s))
        is_interrupted = False
    print_table(kept.outcomes, skipped, console)
    is_forbidden = bool(skipped) and os.environ.get("CHAOS_REQUIRED") == "1"
    if is_forbidden:
        console.print("[bold red]CHAOS_REQUIRED=1 forbids skipping: install what is needed[/]")
    is_bad = is_forbidden or any(not one.is_good for one in kept.outcomes)
    sys.exit(130 if is_interrupted else is_bad)


def _only(scripts: tuple[str, ...], fault: Fault) -> Fault:
    """Return the fault of scripts, limited to the named *scripts* if there are any."""
    some = functools.partial(script_rounds, names=scripts)
    return dataclasses.replace(fault, rounds=some) if scripts else fault


def _with_java(chosen: list[Fault]) -> tuple[list[Fault], dict[str, str]]:
    """Return the faults with Java clients in replica sets, and the reason if that is impossible."""
    names = {one.name for one in chosen} & {USED_BY_JAVA}
    if names and (what := java.lacking()):
        return chosen, {f"{USED_BY_JAVA}: Java": f"needs {what}"}
    with_java = functools.partial(replica_rounds, has_java=True)
    return [
        dataclasses.replace(one, rounds=with_java) if one.name in names else one for one in chosen
    ], {}


async def _run(
    fault: Fault, workshop: Workshop, kept: ResultsFile, seed: int, wanted: int | None, end_s: float
) -> None:
    """Run *wanted* rounds, or rounds until *end_s*; at least one.

    With a number, the whole round is run each time, so that a seed repeats its whole session.
    """
    first = kept.next_seed(fault.name, seed)
    made = kept.rounds(fault.name)
    if fault.is_made_once and made >= fault.long_rounds:
        return
    for number in range(first, 1 << 62):
        async with (
            Watchdog(f"{fault.name} seed {number}") as watchdog,
            contextlib.aclosing(fault.rounds(workshop, number)) as outcomes,
        ):
            async for outcome in outcomes:
                watchdog.reset()
                kept.add(outcome)
                made += outcome.rounds
                _tell(fault, outcome)
                if wanted is None and time.monotonic() >= end_s:
                    return
        if wanted is not None and made >= wanted:
            return


def _tell(fault: Fault, outcome: Outcome) -> None:
    mark = "[green]ok[/]" if outcome.is_good else "[bold red]FAILED[/]"
    console.print(
        f"{mark} {outcome.variant} seed {outcome.seed}: {outcome.acknowledged:,} acknowledged, "
        f"{outcome.lost} lost, {outcome.repeated} repeated; {outcome.note}",
        highlight=False,
    )
    for complaint in outcome.complaints:
        console.print(f"   {complaint}", style="red", highlight=False, markup=False)
    if not outcome.is_good:
        which = f"--script {outcome.variant}" if fault.is_made_once else f"--fault {fault.name}"
        again = f"{which} --seed {outcome.seed} --rounds 1"
        console.print(f"   again: .venv/bin/python -m tests.chaos {again}", highlight=False)


def _enter_namespaces(*, has_network: bool) -> None:
    """Continue in a process whose end also ends its children, mounts and networks.

    With *has_network* the process may create hosts; it then cannot reach any outside network.
    """
    # Like Ctrl-C, for which asyncio ends its tasks in order.
    signal.signal(signal.SIGTERM, lambda *_: os.kill(os.getpid(), signal.SIGINT))
    if INSIDE in os.environ or os.geteuid() != 0 or shutil.which("unshare") is None:
        if INSIDE in os.environ and has_network:
            run("ip", "link", "set", "lo", "up")
        return
    unshare = ["unshare", "--mount", "--pid", "--fork", "--kill-child=KILL", "--mount-proc"]
    if has_network:
        unshare.append("--net")
    inside = ["--propagation=private", sys.executable, "-m", "tests.chaos", *sys.argv[1:]]
    command = ["setpriv", "--pdeathsig=KILL", *unshare, *inside]
    process = subprocess.Popen(command, env={**os.environ, INSIDE: "1"})
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the inner process received it too
    signal.signal(signal.SIGTERM, lambda *_: _end(process.pid))
    code = process.wait()
    sys.exit(code if code >= 0 else 128 - code)


def _end(unshare_pid: int) -> None:
    """Stop the inner suite with SIGTERM, which unshare itself ignores."""
    for pid in descendants(unshare_pid)[:1]:
        os.kill(pid, signal.SIGTERM)


if __name__ == "__main__":
    main()
