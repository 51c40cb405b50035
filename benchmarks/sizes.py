"""A broker's use of memory and disk: `python -m benchmarks.sizes [--save NAME]`.

Memory is that of the idle process, and what connections and topics with messages add to it. Disk is
the allocated space of the files, for a new store and for 100,000 messages. The benchmark does not
measure speed, so the machine need not be quiet.
"""

import argparse
import asyncio
import contextlib
import json
import socket
import sys
import time
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path

from benchmarks.load import BUILD, HERE
from benchmarks.origin import here_and_now
from benchmarks.servers import Server, rockhopper
from benchmarks.topics import runtime_info
from rockhopper import Message, Producer

CONNECTION_COUNT = 1000
TOPIC_COUNT = 1000
QUEUE_COUNT = 4
MESSAGE_COUNT = 100_000
BODY_SIZE_BYTES = 1000
SETTLE_S = 2.0
FOLDERS = ("commitlog", "consumequeue", "index")


def disk_mb(directory: Path) -> float:
    """Return the allocated size of the files below *directory*, in 10**6 bytes."""
    blocks = sum(path.lstat().st_blocks for path in directory.rglob("*"))
    return blocks * 512 / 1e6


def disk_mb_by_folder(server: Server) -> dict[str, float]:
    """Return the allocated size of each kind of the store's files."""
    assert server.log is not None
    return {folder: disk_mb(server.log.parent / folder) for folder in FOLDERS}


def idle_connections_mb(server: Server) -> float:
    """Return the memory that CONNECTION_COUNT connections add after a request each, in MB."""
    before_mb = server.memory_mb()
    with contextlib.ExitStack() as stack:
        for _ in range(CONNECTION_COUNT):
            connection = socket.create_connection(("127.0.0.1", server.port))
            runtime_info(stack.enter_context(connection))
        time.sleep(SETTLE_S)
        return server.memory_mb() - before_mb


async def topics_mb(server: Server) -> tuple[float, float]:
    """Return the memory and disk that TOPIC_COUNT topics with a message per queue add, in MB."""
    before_mb, disk_before_mb = server.memory_mb(), disk_mb_by_folder(server)["consumequeue"]
    async with Producer(nameserver=f"127.0.0.1:{server.namesrv_port}") as producer:
        for number in range(TOPIC_COUNT):
            for _ in range(QUEUE_COUNT):
                await producer.send(Message(f"topic-{number}", b"hello"))
    await asyncio.sleep(SETTLE_S)
    disk_after_mb = disk_mb_by_folder(server)["consumequeue"]
    return server.memory_mb() - before_mb, disk_after_mb - disk_before_mb


async def messages_mb(server: Server) -> dict[str, float]:
    """Return the space of MESSAGE_COUNT messages with a key in log, queues and index, in MB."""
    assert server.log is not None
    before = disk_mb_by_folder(server)
    log_before = end_of_log(server)
    async with Producer(nameserver=f"127.0.0.1:{server.namesrv_port}") as producer:
        body = bytes(range(250)) * 4
        for start in range(0, MESSAGE_COUNT, 500):
            numbers = range(start, start + 500)
            messages = [Message("LoadTest", body, keys=[f"order-{number}"]) for number in numbers]
            await asyncio.gather(*(producer.send(message) for message in messages))
    await asyncio.sleep(SETTLE_S)
    after = disk_mb_by_folder(server)
    taken = {folder: after[folder] - before[folder] for folder in FOLDERS}
    return {**taken, "commitlog": (end_of_log(server) - log_before) / 1e6}


def end_of_log(server: Server) -> int:
    """Return the log's end offset, because its preallocated file's size says nothing."""
    with socket.create_connection(("127.0.0.1", server.port)) as connection:
        return int(runtime_info(connection)["commitLogMaxOffset"])


def measure() -> dict[str, object]:
    """Start a broker three times, and measure what each uses."""
    BUILD.mkdir(exist_ok=True)
    with rockhopper({}) as server:
        time.sleep(SETTLE_S)
        idle_mb, new_store_mb = server.memory_mb(), disk_mb_by_folder(server)
        connections_mb = idle_connections_mb(server)
    with rockhopper({}) as server:
        memory_mb, queues_mb = asyncio.run(topics_mb(server))
    with rockhopper({}) as server:
        stored_mb = asyncio.run(messages_mb(server))
    return {
        "origin": asdict(here_and_now("")),
        "idle_memory_mb": idle_mb,
        "new_store_mb": new_store_mb,
        "idle_connections_mb": connections_mb,
        "connections": CONNECTION_COUNT,
        "topics_memory_mb": memory_mb,
        "topics_queues_disk_mb": queues_mb,
        "topics": TOPIC_COUNT,
        "queue_disk_kb": queues_mb * 1e3 / TOPIC_COUNT / QUEUE_COUNT,
        "messages": MESSAGE_COUNT,
        "body_size_bytes": BODY_SIZE_BYTES,
        "messages_mb": stored_mb,
        "log_bytes_beside_body": stored_mb["commitlog"] * 1e6 / MESSAGE_COUNT - BODY_SIZE_BYTES,
    }


def main(arguments: Sequence[str] | None = None) -> int:
    """Print the results, and save them."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--save", metavar="NAME", help="write benchmarks/results/NAME.json")
    options = parser.parse_args(arguments)
    text = json.dumps(measure(), indent=1)
    print(text)
    if options.save:
        (HERE / "results" / f"{options.save}.json").write_text(text + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
