"""A broker that asks everybody who he is, over TLS alone, and Spark as a user of few rights."""

import re
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from rockhopper.client import Credentials, TlsOptions
from rockhopper.pipeline import jobs
from rockhopper.pipeline.jobs.archiving.reading import read_archive
from tests.support.certificates import Authority
from tests.support.documented_rights import documented_rights
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


@contextmanager
def events_logged(spark: "SparkSession", directory: Path) -> Iterator[None]:
    """Have what happens within in the event log below *directory*, whole once it is over."""
    directory.mkdir()
    jvm, context = spark._jvm, spark.sparkContext._jsc.sc()
    assert jvm is not None
    settings = context.conf().clone().set("spark.eventLog.compress", "false")
    log = jvm.org.apache.spark.scheduler.EventLoggingListener(
        "secured", jvm.scala.Option.empty(), jvm.java.net.URI(directory.as_uri()), settings
    )
    log.start()
    context.addSparkListener(log)
    try:
        yield
        context.listenerBus().waitUntilEmpty()
    finally:
        context.removeSparkListener(log)
        log.stop()


def below(directory: Path) -> bytes:
    """What all files there hold."""
    return b"".join(path.read_bytes() for path in directory.rglob("*") if path.is_file())


def test_what_spark_reads_and_writes_as_a_user(
    spark: "SparkSession",
    broker: PipelineBroker,
    access: dict[str, str],
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    given = {"nameServer": broker.nameserver, **access}
    events, checkpoint = tmp_path / "events", tmp_path / "checkpoint"
    with events_logged(spark, events):
        frame = spark.read.format("rocketmq").options(subscribe="in", **given).load()
        assert sorted(row.body.decode() for row in frame.collect()) == BODIES
        frame.explain(extended=True)
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
    plan = capsys.readouterr().out
    assert "rocketmq" in plan
    kept, logged = below(checkpoint), below(events)
    assert kept
    assert b"SparkListenerSQLExecutionStart" in logged
    for shown in (plan.encode(), kept, logged):
        assert SECRET.encode() not in shown


def test_rows_are_written_as_a_user(
    spark: "SparkSession", broker: PipelineBroker, access: dict[str, str]
) -> None:
    broker.create("rows", 1)
    broker.run(
        broker.admin.accounts.add_rule("spark", "Topic:rows", ("Pub", "Get"), is_allowed=True)
    )
    writer = spark.createDataFrame([("x",)], "body string").write.format("rocketmq")
    given = {"nameServer": broker.nameserver, **access}
    writer.options(topic="rows", **given).mode("append").save()
    assert broker.bodies("rows") == ["x"]


ROWS = [who for who in documented_rights() if who.startswith("Spark, ")]


@pytest.mark.parametrize("who", ROWS)
def test_a_user_with_the_documented_rights_and_no_others_does_what_the_page_says(
    spark: "SparkSession", broker: PipelineBroker, authority: Authority, tmp_path: Path, who: str
) -> None:
    number = ROWS.index(who)
    name, topic = f"documented{number}", f"documented-{number}"
    broker.create(topic, 1)
    accounts = broker.admin.accounts
    broker.run(accounts.add_user(name, SECRET))
    for resource, actions in documented_rights()[who]:
        named = resource.replace("orders", topic)
        broker.run(accounts.add_rule(name, named, actions, is_allowed=True))
    path = tmp_path / "credentials"
    path.write_text(f"accessKey: {name}\nsecretKey: {SECRET}\n")
    path.chmod(0o600)
    given = {
        "nameServer": broker.nameserver,
        "tlsCa": str(authority.ca),
        "credentialsFile": str(path),
    }
    if "writing" in who:
        rows = spark.createDataFrame([("x",)], "body string")
        if "exactly-once" in who:
            given |= {"delivery": "exactly-once", "sinkId": name}
        rows.write.format("rocketmq").options(topic=topic, **given).mode("append").save()
        assert broker.bodies(topic) == ["x"]
        return
    broker.send(topic, ["x"], 0)
    if "groupId" in who:
        given["groupId"] = "billing"
    read = spark.read.format("rocketmq").options(subscribe=topic, **given).load()
    assert [row.body.decode() for row in read.collect()] == ["x"]


def test_a_file_that_a_worker_lacks_is_named_with_its_host(
    spark: "SparkSession", broker: PipelineBroker, access: dict[str, str]
) -> None:
    given = {"nameServer": broker.nameserver, **access}
    frame = spark.read.format("rocketmq").options(subscribe="in", **given).load()
    Path(access["credentialsFile"]).unlink()
    named = f"{re.escape(access['credentialsFile'])} cannot be read.*{socket.gethostname()}"
    with pytest.raises(Exception, match=named):
        frame.collect()


@pytest.mark.parametrize("by", ["arguments", "environment"])
def test_jobs_archive_as_a_user(
    spark: "SparkSession",
    broker: PipelineBroker,
    access: dict[str, str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    by: str,
) -> None:
    tls, credentials = None, None
    if by == "arguments":
        tls, credentials = TlsOptions(access["tlsCa"]), access["credentialsFile"]
    else:
        monkeypatch.setenv("ROCKHOPPER_TLS_CA", access["tlsCa"])
        monkeypatch.setenv("ROCKHOPPER_CREDENTIALS_FILE", access["credentialsFile"])
    root, names = tmp_path / "history", broker.nameserver
    jobs.archive(
        root, nameserver=names, topics=["in"], spark=spark, tls=tls, credentials=credentials
    )
    rows = read_archive(spark, str(root)).collect()
    assert sorted(row.body.decode() for row in rows) == BODIES
    assert SECRET.encode() not in below(root)
