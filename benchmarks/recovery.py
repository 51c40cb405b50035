"""The speed of recovery through a log without derived files, beside a plain CRC pass.

    python -m benchmarks.recovery [--messages 1000000] [--body-bytes 200] [--rounds 5] [--no-index]

Each round reads the log's bytes from the page cache with ``zlib.crc32``, then opens the store
without queues, index or checkpoint, as if they had been lost. The start checks every body and
rebuilds queues and index. The figures are CPU seconds and medians.
"""

import argparse
import shutil
import statistics
import tempfile
import time
import zlib
from collections.abc import Callable
from pathlib import Path

from benchmarks.pipeline_data import write_store
from rockhopper.broker.settings.store_config import StoreConfig
from rockhopper.broker.store.message_store import MessageStore

_CHUNK_BYTES = 1 << 20
_DERIVED = ("consumequeue", "index", "checkpoint", "rockhopper")


def main() -> None:
    """Print the cost per message of both, and the ratio."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--messages", type=int, default=1_000_000)
    parser.add_argument("--body-bytes", type=int, default=200)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--no-index", action="store_true")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="rockhopper-recovery-") as name:
        directory = Path(name) / "store"
        size_bytes = write_store(directory, options.messages, options.body_bytes)
        passes_s, starts_s = [], []
        for _ in range(options.rounds):
            passes_s.append(_cpu_s(lambda: _crc_pass(directory, size_bytes)))
            for derived in _DERIVED:
                shutil.rmtree(directory / derived, ignore_errors=True)
                (directory / derived).unlink(missing_ok=True)
            (directory / "abort").touch()
            starts_s.append(_cpu_s(lambda: _open(directory, with_index=not options.no_index)))
    pass_s, start_s = statistics.median(passes_s), statistics.median(starts_s)
    for what, took_s in (("CRC pass", pass_s), ("start", start_s)):
        print(
            f"{what}: {took_s:.3f} s of CPU, {1e6 * took_s / options.messages:.2f} us a message, "
            f"{size_bytes / took_s / 1e6:,.0f} MB/s"
        )
    print(f"the start has {pass_s / start_s:.2f} of the pass's speed (to reach: 0.4)")


def _cpu_s(do: Callable[[], None]) -> float:
    began_s = time.process_time()
    do()
    return time.process_time() - began_s


def _crc_pass(directory: Path, size_bytes: int) -> None:
    left = size_bytes
    for path in sorted((directory / "commitlog").iterdir()):
        with path.open("rb") as file:
            while left > 0 and (chunk := file.read(min(_CHUNK_BYTES, left))):
                zlib.crc32(chunk)
                left -= len(chunk)


def _open(directory: Path, *, with_index: bool) -> None:
    config = StoreConfig(root=directory, index_enabled=with_index)
    MessageStore.open(config, now_ms=lambda: time.time_ns() // 1_000_000).abandon()


if __name__ == "__main__":
    main()
