"""A broker that asks everybody who he is, over TLS alone, and Spark as a user of few rights."""

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from rockhopper.client import Credentials, TlsOptions
from rockhopper.pipeline import jobs
from rockhopper.pipeline.jobs.archiving.reading import read_archive
from tests.support.certificates import Authority
from tests.support.ending_query import run_to_end
from tests.support.pipeline_broker import PipelineBroker

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.spark, pytest.mark.slow]

ROOT, SECRET = "the-secret-of-root", "the-secret-of-spark"
BODIES = [f"{number:05d}" for number in range(100)]
RULES = {
    "Topic:in": ("Sub", "Get"),
    "Topic:out": ("Pub", "Sub", "Get"),
    "Group:copying": ("Sub", "Get"),
    "Group:TOOLS_CONSUMER": ("Sub",),
    "Sink:*": ("Pub",),
    "Cluster:*": ("Get",),
}


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("authority"))


@pytest.fixture(scope="module")
def broker(authority: Authority) -> Iterator[PipelineBroker]:
    pair = authority.issue()
    with PipelineBroker(
        tls=TlsOptions(authority.ca),
        credentials=Credentials("root", ROOT),
        tlsServerMode="enforcing",
        tlsCertPath=str(pair.certificate),
        tlsKeyPath=str(pair.key),
        authenticationEnabled=True,
        authorizationEnabled=True,
        initAuthenticationUser=f'{{"username": "root", "password": "{ROOT}"}}',
    ) as broker:
        accounts = broker.admin.accounts
        broker.run(accounts.add_user("spark", SECRET))
        for resource, actions in RULES.items():
            broker.run(accounts.add_rule("spark", resource, actions, is_allowed=True))
        for topic in ("in", "out"):
            broker.create(topic, 2)
        broker.send("in", BODIES, 0)
        yield broker


@pytest.fixture
def access(authority: Authority, tmp_path: Path) -> dict[str, str]:
    """The options that name files."""
    path = tmp_path / "credentials"
    path.write_text(f"accessKey: spark\nsecretKey: {SECRET}\n")
    path.chmod(0o600)
    return {"tlsCa": str(authority.ca), "credentialsFile": str(path)}


def test_what_spark_reads_and_writes_as_a_user(
    spark: "SparkSession",
    broker: PipelineBroker,
    access: dict[str, str],
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    given = {"nameServer": broker.nameserver, **access}
    frame = spark.read.format("rocketmq").options(subscribe="in", **given).load()
    assert sorted(row.body.decode() for row in frame.collect()) == BODIES
    frame.explain(extended=True)
    plan = capsys.readouterr().out
    assert "rocketmq" in plan
    assert SECRET not in plan

    checkpoint = tmp_path / "checkpoint"
    source = spark.readStream.format("rocketmq").options(
        subscribe="in", startingOffsets="earliest", groupId="copying", **given
    )
    writer = source.load().select("body").writeStream.format("rocketmq")
    run_to_end(
        writer.options(
            topic="out",
            delivery="exactly-once",
            checkpointLocation=str(checkpoint),
            **given,
        )
        .trigger(availableNow=True)
        .start
    )
    assert sorted(broker.bodies("out")) == BODIES
    kept = b"".join(path.read_bytes() for path in checkpoint.rglob("*") if path.is_file())
    assert kept
    assert SECRET.encode() not in kept


def test_jobs_archive_as_a_user(
    spark: "SparkSession",
    broker: PipelineBroker,
    access: dict[str, str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("ROCKHOPPER_TLS_CA", access["tlsCa"])
    monkeypatch.setenv("ROCKHOPPER_CREDENTIALS_FILE", access["credentialsFile"])
    root = str(tmp_path / "history")
    jobs.archive(root, nameserver=broker.nameserver, topics=["in"], spark=spark)
    assert sorted(row.body.decode() for row in read_archive(spark, root).collect()) == BODIES
