"""Made-up results of benchmark runs."""

from collections.abc import Sequence

from benchmarks.cases import ECHO
from benchmarks.load import Sample
from benchmarks.origin import Origin
from benchmarks.results import OURS, Results

PEER = "Apache 5.5.0"
ORIGIN = Origin(
    "2026-11-24T03:00:00+00:00", 2, "Some CPU", "6.1", "3.11.7", 0.1, "0123456789ab", False
)


def sample(
    rate: float,
    cpu_us: float = 1.0,
    *,
    round: int = 0,
    p50_us: float = 500.0,
    p99_us: float = 900.0,
) -> Sample:
    """Return one run of a case, on a quiet machine and without a failure."""
    return Sample(
        messages_per_s=rate,
        cpu_us=cpu_us,
        cpu_share=0.9,
        load_cpu_share=0.3,
        others_cpu_share=0.0,
        p50_us=p50_us,
        p99_us=p99_us,
        max_us=2000.0,
        is_quiet=True,
        failures={},
        refusal="",
        round=round,
    )


def run_of(
    rates: Sequence[float],
    cpu_us: Sequence[float] = (1.0, 1.0, 1.0),
    *,
    case: str = "single",
    origin: Origin | None = ORIGIN,
) -> Results:
    """Return a run with an echo of 1,000 frames per second; *rates* of *case*, one per round."""
    found = Results("a machine", origin)
    for number, (rate, cost) in enumerate(zip(rates, cpu_us, strict=False)):
        found.add(ECHO.name, ECHO.name, sample(1000.0, 0.5, round=number))
        found.add(OURS, case, sample(rate, cost, round=number))
    return found


def whole_run(origin: Origin | None = ORIGIN, *, times: float = 2.0) -> Results:
    """Return a run with all facts of README: we are *times* as fast as Apache, at half the cost."""
    found = run_of([400.0], origin=origin)
    found.start_s, found.idle_memory_mb, found.interpreter_start_s = [0.25], [40.4], [0.02]
    for case in ("batch", "pull"):
        found.add(OURS, case, sample(400.0))
    for case in ("single", "batch", "pull"):
        found.add(PEER, case, sample(400.0 / times, 2.0))
    return found
