"""Whatever happens to a store's files, audits, rebuilds and searches end with a report."""

import random
import shutil
from pathlib import Path

import pytest

from rockhopper.broker.store.files.errors import StoreError
from rockhopper.broker.tools.repair.rebuilding import rebuild
from rockhopper.broker.tools.store_view import StoreView
from rockhopper.pipeline.errors import PipelineError
from rockhopper.pipeline.jobs.searching.job import search
from rockhopper.pipeline.jobs.tasks import run_in_this_process
from tests.support import apache_golden
from tests.support.derived_stores import (
    APACHE_GEOMETRY,
    GEOMETRY,
    audited,
    write_store,
)
from tests.support.rot import overwrite

pytestmark = pytest.mark.usefixtures("real_syncs")

SEEDS = 20
# What a rebuild cannot repair: the log itself, and what was lost with it.
OF_THE_LOG = {
    "log damage",
    "message lost",
    "body",
    "sys flag",
    "torn tail",
    "foreign file",
    "conflict",
}


def spoil(path: Path, chance: random.Random) -> None:
    size = path.stat().st_size
    used = max(len(path.read_bytes().rstrip(b"\0")), 1)
    at = chance.randrange(used)
    match chance.randrange(6):
        case 0 | 1:
            overwrite(path, at, bytes([chance.randrange(256)]))
        case 2:
            overwrite(path, at, chance.randbytes(chance.randrange(1, 200))[: size - at])
        case 3:
            overwrite(path, at, bytes(min(chance.randrange(1, 3000), size - at)))
        case 4:
            path.unlink()
        case _:
            path.write_bytes(path.read_bytes()[::-1])


def write_config(directory: Path, geometry: dict[str, int]) -> Path:
    slots, entries = geometry["index_slots"], geometry["index_entries"]
    path = directory / "broker.conf"
    path.write_text(f"maxHashSlotNum={slots}\nmaxIndexNum={entries}\n")
    return path


def test_no_damage_ends_in_anything_but_a_report(tmp_path: Path) -> None:
    ours = write_store(tmp_path / "ours", 120)
    batch = apache_golden.unpack("batch", tmp_path).path
    for seed in range(SEEDS):
        chance = random.Random(seed)
        source, geometry = chance.choice(((ours, GEOMETRY), (batch, APACHE_GEOMETRY)))
        store = tmp_path / f"store-{seed}"
        shutil.copytree(source, store)
        files = sorted(
            path
            for name in ("commitlog", "consumequeue", "batchconsumequeue", "index")
            for path in (store / name).rglob("*")
            if path.is_file()
        )
        for path in chance.sample(files, chance.choice((1, 1, 2, 4))):
            spoil(path, chance)
        try:
            report = audited(store, split_size=chance.choice((None, 4096)), **geometry)
            for finding in report.findings:
                assert finding["path"] or finding["topic"] or finding["commitLogOffset"] is not None
            search(str(store), key="kk", run=run_in_this_process)
            rebuild(StoreView(store, write_config(tmp_path, geometry)))
            left = set(audited(store, **geometry).counts) - OF_THE_LOG
        except (PipelineError, StoreError):
            left = set()  # A sentence is as good: what may be in it is tried elsewhere.
        assert not left, (seed, left)
        shutil.rmtree(store)
