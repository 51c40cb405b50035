"""An archive in an object store: a server of S3 on the loopback address."""

import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from rockhopper.pipeline import PipelineError, jobs
from rockhopper.pipeline.jobs.archiving.files import files_at
from tests.support.hang import HANG_S
from tests.support.network_queries import numbered
from tests.support.pipeline_broker import PipelineBroker
from tests.support.written_logs import WrittenLog

pytestmark = [pytest.mark.spark, pytest.mark.slow, pytest.mark.timeout(600)]

SERVER = """
import sys, threading
from moto.server import ThreadedMotoServer
server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
server.start()
print(server.get_host_and_port()[1], flush=True)
sys.stdin.read()
"""


@pytest.fixture(scope="module")
def endpoint() -> Iterator[str]:
    command = [sys.executable, "-c", SERVER]
    pipes: dict[str, Any] = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
    pipes["stderr"] = subprocess.DEVNULL
    with subprocess.Popen(command, text=True, **pipes) as process:
        assert process.stdout is not None
        yield f"http://127.0.0.1:{process.stdout.readline().strip()}"
        process.terminate()


@pytest.fixture
def bucket(endpoint: str, request: Any, monkeypatch: pytest.MonkeyPatch) -> str:
    for name, value in (
        ("AWS_ENDPOINT_URL", endpoint),
        ("AWS_ACCESS_KEY_ID", "key"),
        ("AWS_SECRET_ACCESS_KEY", "secret"),
        ("AWS_DEFAULT_REGION", "us-east-1"),
    ):
        monkeypatch.setenv(name, value)
    name = request.node.name.replace("_", "-")[:60]
    made = urllib.request.Request(f"{endpoint}/{name}", method="PUT")
    with urllib.request.urlopen(made, timeout=HANG_S) as answer:
        assert answer.status == 200
    return f"s3://{name}/history"


def test_an_archive_grows_is_searched_and_audited(bucket: str, tmp_path: Path) -> None:
    log = WrittenLog(tmp_path / "store").add(60, properties={"KEYS": "k"})
    assert jobs.archive(bucket, path=log.root, broker_name="a").rows == 60
    log.add(30)
    assert jobs.archive(bucket, path=log.root, broker_name="a").rows == 30
    assert jobs.archive(bucket, path=log.root, broker_name="a").rows == 0

    assert jobs.search(archive=bucket, key="k").match_count == 60
    assert jobs.audit(str(log.root), archive=bucket, checks=["archive"]).is_good
    assert jobs.report(str(tmp_path / "report"), archive=bucket).messages == 90
    files = files_at(bucket)
    (day,) = files.names("topic=topic-0")
    part = f"topic=topic-0/{day}/{files.names(f'topic=topic-0/{day}')[0]}"
    data = files.read(part)
    assert data is not None
    files.write(part, data[:-1] + b"?")
    assert not jobs.audit(str(log.root), archive=bucket, checks=["archive"]).is_good


def test_a_run_that_was_cut_off_is_finished_by_the_next(
    bucket: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from rockhopper.pipeline.jobs.archiving.files import RemoteFiles

    log = WrittenLog(tmp_path / "store").add(60)
    with monkeypatch.context() as cut:
        move = RemoteFiles.move
        cut.setattr(RemoteFiles, "move", lambda self, moves: move(self, list(moves)[:1]))
        cut.setattr(RemoteFiles, "remove_tree", _die)
        with pytest.raises(KeyboardInterrupt):
            jobs.archive(bucket, path=log.root, broker_name="a")
    log.add(6)
    jobs.archive(bucket, path=log.root, broker_name="a")
    assert jobs.search(archive=bucket, topics=["topic-0"], sql92="a IS NULL").match_count == 22
    assert jobs.audit(str(log.root), archive=bucket, checks=["archive"]).is_good


def _die(*_: object) -> None:
    raise KeyboardInterrupt


def test_topics_are_archived_and_a_replay_says_what_it_needs(bucket: str) -> None:
    with PipelineBroker() as broker:
        broker.create("kept", 1)
        broker.send("kept", numbered(0, 50), 0)
        assert jobs.archive(bucket, nameserver=broker.nameserver, topics=["kept"]).rows == 50
        with pytest.raises(PipelineError, match="replay reads local files, so mount it"):
            jobs.replay(bucket, nameserver=broker.nameserver)


def test_a_bucket_that_is_not_there_is_a_sentence(bucket: str, tmp_path: Path) -> None:
    log = WrittenLog(tmp_path / "store").add(3)
    with pytest.raises(PipelineError) as raised:
        jobs.archive("s3://no-such-bucket-here/x", path=log.root, broker_name="a")
    assert "no-such-bucket-here" in str(raised.value)
