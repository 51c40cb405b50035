"""A streaming copy loses nothing and repeats nothing, whichever process of it is killed.

One round of ``python -m tests.chaos --fault spark-sinks``.
"""

import os
from pathlib import Path

import pytest

from tests.chaos.spark_sinks import rounds
from tests.chaos.workshop import Workshop

pytestmark = [
    pytest.mark.spark,
    pytest.mark.slow,
    pytest.mark.timeout(2400),
    pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="looks for processes in /proc"),
]

KILLS = 6
SEED = int(os.environ.get("ROCKHOPPER_SEED", "20261120"))


async def test_a_copy_is_exact_whatever_is_killed(tmp_path: Path) -> None:
    with Workshop.opened(tmp_path) as workshop:
        async for outcome in rounds(workshop, SEED, counts=(3,), kills=KILLS):
            print(outcome.note, outcome.seed)
            assert outcome.complaints == []
            assert outcome.acknowledged > 1_000
