"""Make tests/golden/apache-<version>/stores.tar.xz anew with Apache's official release.

Run as ``python -m tests.interop.make_golden``; needs a JDK and Maven. Each store of the archive is
a directory as Apache's broker left it, with a JSON file of the same name beside it: what the Java
client read from it before the broker ended. tests/golden/apache-<version>/README.md says what they
hold.
"""

import json
import sys
import tarfile
import tempfile
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from tests.interop import apache
from tests.interop.apache import ApacheServer
from tests.interop.java_client import JavaClient

GOLDEN = Path(__file__).parents[1] / "golden"

GEOMETRY = {
    "mappedFileSizeCommitLog": "65536",
    "mappedFileSizeConsumeQueue": "2000",
    "mapperFileSizeBatchConsumeQueue": "920",
    "mappedFileSizeConsumeQueueExt": "4096",
    "maxHashSlotNum": "64",
    "maxIndexNum": "400",
}


class Recorder:
    """One store in the making."""

    def __init__(self, client: JavaClient, server: ApacheServer) -> None:
        self._client = client
        self.server = server

    def send(self, topic: str, count: int, **options: object) -> Any:
        """Send through the Java producer."""
        options = {"keys": True, "tags": ["red", "green"], **options}
        return self.call("send", topic=topic, count=count, **options)

    def call(self, op: str, **options: object) -> Any:
        """Run an operation of the Java client against this server."""
        return self._client.call(op, nameserver=self.server.nameserver, **options)

    def read(self, *topics: str) -> dict[str, Any]:
        """Return all that the topics hold."""
        return {topic: self.call("pull", topic=topic, group="golden-reader") for topic in topics}


def plain(store: Recorder) -> dict[str, Any]:
    """Fill a store with singles, batches, compressed bodies, delayed messages; end it cleanly."""
    store.send("Plain", 300, prefix="single", properties={"region": "eu"})
    store.send("Plain", 15, prefix="batch", mode="batch", batchSize=5)
    store.send("Plain", 6, prefix="big", bodySize=20_000)
    store.send("Untagged", 3, prefix="untagged", keys=False, tags=None)
    store.send("Plain", 2, prefix="soon", delayLevel=1)
    store.send("Plain", 1, prefix="late", delayLevel=18)
    store.call("consume", topic="Plain", group="golden-group", count=323, timeoutMs=20_000)
    return store.read("Plain", "Untagged")


def batch(store: Recorder) -> dict[str, Any]:
    """Fill a BatchCQ topic: each batch is one record, and so is each single message."""
    store.send("Batches", 12, prefix="inner", mode="batch", batchSize=4, queueId=0)
    store.send("Batches", 60, first=12, prefix="inner", mode="batch", batchSize=2, queueId=1)
    store.send("Batches", 3, prefix="single", queueId=0)
    store.send("Plain", 4, prefix="plain", mode="batch", batchSize=4)
    return store.read("Batches", "Plain")


def extended(store: Recorder) -> dict[str, Any]:
    """Fill consume queues whose units point into ConsumeQueueExt."""
    store.send("Extended", 150, prefix="single")
    store.send("Extended", 3, prefix="untagged", tags=None)
    return store.read("Extended")


def killed(store: Recorder) -> dict[str, Any]:
    """Fill a store whose broker is killed while it runs."""
    store.send("Plain", 300, prefix="single")
    store.send("Batches", 12, prefix="inner", mode="batch", batchSize=4)
    found = store.read("Plain", "Batches")
    # The page cache outlives the process, so what dispatch had written is in the files.
    store.server.kill()
    return found


TOPICS = ("Plain:4", "Untagged:1", "Batches:2:queue.type=BatchCQ", "Extended:2")
STORES: dict[Callable[[Recorder], dict[str, Any]], dict[str, str]] = {
    plain: {},
    batch: {},
    extended: {"enableConsumeQueueExt": "true"},
    killed: {},
}


def make(directory: Path) -> Path:
    """Fill *directory* and return the archive made of it."""
    client = JavaClient(directory / "client")
    names = []
    with ThreadPoolExecutor() as stopping:
        for fill, settings in STORES.items():
            name = fill.__name__
            options = {
                **GEOMETRY,
                **settings,
                "storePathRootDir": str(directory / name),
                "timerWheelEnable": "false",  # its file alone has 38 MB
            }
            server = apache.start(directory / f"{name}.server", settings=options, topics=TOPICS)
            found = {"geometry": {**GEOMETRY, **settings}, "topics": fill(Recorder(client, server))}
            (directory / f"{name}.json").write_text(json.dumps(found, sort_keys=True))
            names += [name, f"{name}.json"]
            if server.process.returncode is None:
                stopping.submit(server.stop)
    client.close()
    target = GOLDEN / f"apache-{apache.version()}" / "stores.tar.xz"
    target.parent.mkdir(parents=True, exist_ok=True)
    with tarfile.open(target, "w:xz", preset=9) as archive:
        for name in names:
            archive.add(directory / name, name, filter=_anonymous)
    return target


def _anonymous(member: tarfile.TarInfo) -> tarfile.TarInfo:
    member.uid = member.gid = 0
    member.uname = member.gname = ""
    return member


def main() -> None:
    """Make the archive and say how large it is."""
    started = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="golden-") as directory:
        target = make(Path(directory))
    sys.stdout.write(
        f"{target}: {target.stat().st_size} bytes, {time.monotonic() - started:.0f} s\n"
    )


if __name__ == "__main__":
    main()
