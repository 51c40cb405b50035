"""A store directory with a big commit log, created in seconds, for the benchmarks of the pipeline.

    python -m benchmarks.pipeline_data DIRECTORY [--messages 2000000] [--body-bytes 200]

All records have the same size, so that whole files are filled at once: random bodies, four topics
of four queues, the properties UNIQ_KEY, KEYS, TAGS, WAIT. There are no consume queues and no index.
"""

import argparse
from pathlib import Path
from typing import Any
from zlib import crc32

import numpy as np

from rockhopper.protocol.addresses import host_bytes
from rockhopper.protocol.store.message_codec.record import BODY_CRC_MASK
from rockhopper.protocol.store.record_head import BLANK_RECORD, MAGIC_BLANK, MAGIC_V1

FILE_SIZE_BYTES = 1 << 30
TOPIC_COUNT = 4
QUEUE_COUNT = 4
START_MS = 1_760_000_000_000
MESSAGES_PER_MS = 20
_CHUNK = 50_000


def write_store(
    directory: Path,
    message_count: int = 2_000_000,
    body_bytes: int = 200,
    file_size_bytes: int = FILE_SIZE_BYTES,
) -> int:
    """Write the log below *directory*; return the number of bytes in its records."""
    layout = _layout(body_bytes)
    commit_log = directory / "commitlog"
    commit_log.mkdir(parents=True)
    random = np.random.default_rng(1)
    per_file = (file_size_bytes - BLANK_RECORD.size) // layout.itemsize
    written = 0
    for base_offset in range(0, message_count * file_size_bytes, file_size_bytes):
        if written == message_count:
            break
        count = min(per_file, message_count - written)
        with open(commit_log / f"{base_offset:020d}", "wb") as file:
            for first in range(0, count, _CHUNK):
                rows = np.arange(first, min(first + _CHUNK, count))
                offsets = base_offset + rows * layout.itemsize
                file.write(_records(layout, rows + written, offsets, random).tobytes())
            left = file_size_bytes - count * layout.itemsize
            if count == per_file:
                file.write(BLANK_RECORD.pack(left, MAGIC_BLANK))
            file.truncate(file_size_bytes)
        written += count
    return message_count * layout.itemsize


def _layout(body_bytes: int) -> np.dtype[Any]:
    return np.dtype(
        [
            ("size", ">i4"),
            ("magic", ">u4"),
            ("crc", ">i4"),
            ("queueId", ">i4"),
            ("flag", ">i4"),
            ("queueOffset", ">i8"),
            ("physOffset", ">i8"),
            ("sysFlag", ">i4"),
            ("bornMs", ">i8"),
            ("bornHost", "V8"),
            ("storeMs", ">i8"),
            ("storeHost", "V8"),
            ("reconsume", ">i4"),
            ("prepared", ">i8"),
            ("bodySize", ">i4"),
            ("body", "u1", (body_bytes,)),
            ("topicSize", "u1"),
            ("topic", "S7"),
            ("propertiesSize", ">u2"),
            ("uniqueName", "S9"),
            ("unique", "S32"),
            ("keysName", "S6"),
            ("keys", "S11"),
            ("tagsName", "S6"),
            ("tags", "S4"),
            ("end", "S11"),
        ]
    )


def _records(layout: np.dtype[Any], numbers: Any, offsets: Any, random: np.random.Generator) -> Any:
    count = len(numbers)
    records = np.zeros(count, layout)
    bodies = random.integers(0, 256, (count, layout["body"].shape[0]), np.uint8)
    records["size"] = layout.itemsize
    records["magic"] = MAGIC_V1
    records["body"] = bodies
    records["crc"] = [crc32(body) & BODY_CRC_MASK for body in bodies]
    records["queueId"] = numbers // TOPIC_COUNT % QUEUE_COUNT
    records["queueOffset"] = numbers // (TOPIC_COUNT * QUEUE_COUNT)
    records["physOffset"] = offsets
    records["storeMs"] = START_MS + numbers // MESSAGES_PER_MS
    records["bornMs"] = records["storeMs"] - numbers % 3
    born = [host_bytes("10.1.0.1", 40_000 + client) for client in range(16)]
    records["bornHost"] = np.array(born, dtype="V8")[numbers % 16]
    records["storeHost"] = np.void(host_bytes("10.0.0.1", 10911))
    records["bodySize"] = layout["body"].shape[0]
    records["topicSize"] = 7
    records["topic"] = np.array([b"topic-%d" % n for n in range(TOPIC_COUNT)])[
        numbers % TOPIC_COUNT
    ]
    records["propertiesSize"] = _properties_size(layout)
    records["uniqueName"] = b"UNIQ_KEY\x01"
    records["unique"] = [b"%032X" % number for number in numbers.tolist()]
    records["keysName"] = b"\x02KEYS\x01"
    records["keys"] = [b"order-%05d" % (number % 100_000) for number in numbers.tolist()]
    records["tagsName"] = b"\x02TAGS\x01"
    records["tags"] = np.array([b"new_", b"paid", b"sent", b"back"])[numbers // 7 % 4]
    records["end"] = b"\x02WAIT\x01true\x02"
    return records


def _properties_size(layout: np.dtype[Any]) -> int:
    assert layout.fields is not None
    return layout.itemsize - layout.fields["uniqueName"][1]


def main() -> None:
    """Run the command line."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("directory", type=Path)
    parser.add_argument("--messages", type=int, default=2_000_000)
    parser.add_argument("--body-bytes", type=int, default=200)
    asked = parser.parse_args()
    size_bytes = write_store(asked.directory, asked.messages, asked.body_bytes)
    print(f"{asked.messages} messages, {size_bytes / 1e6:.0f} MB of records in {asked.directory}")


if __name__ == "__main__":
    main()
