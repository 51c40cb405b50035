"""The archive as a table of Iceberg's: each message once, whatever happens meanwhile."""

import json
import os
import random
import signal
import subprocess
from collections.abc import Iterator
from itertools import count
from typing import Any

import pytest

from tests.support.iceberg_session import (
    REQUIRED,
    IcebergMissingError,
    IcebergSession,
)
from tests.support.network_queries import numbered
from tests.support.pipeline_broker import PipelineBroker

pytestmark = [pytest.mark.spark, pytest.mark.slow, pytest.mark.timeout(900)]
_NUMBERS = count()


@pytest.fixture(scope="module")
def broker() -> Iterator[PipelineBroker]:
    with PipelineBroker() as served:
        yield served


@pytest.fixture(scope="module")
def iceberg(
    tmp_path_factory: pytest.TempPathFactory, broker: PipelineBroker
) -> Iterator[IcebergSession]:
    """A session with Iceberg; skips where it cannot be had, unless it is required."""
    root = tmp_path_factory.mktemp("iceberg")
    try:
        session = IcebergSession(root / "warehouse", root / "session.log")
        broker.create("first", 1)
        broker.send("first", ["one"])
        added = session.archive("lake.db.first", nameserver=broker.nameserver, topics=["first"])
        if added != 1:
            raise IcebergMissingError(f"{added}; see {root / 'session.log'}")
    except IcebergMissingError as error:
        if os.environ.get(REQUIRED) == "1":
            raise
        pytest.skip(f"{error} ({REQUIRED}=1 makes this a failure)")
    yield session
    session.close()


class Archived:
    """A topic and the table that it is archived into."""

    def __init__(self, broker: PipelineBroker, iceberg: IcebergSession) -> None:
        self.topic = f"topic-{next(_NUMBERS)}"
        self.table = f"lake.db.`{self.topic}`"
        self._name = f"lake.db.{self.topic}"
        self.broker = broker
        self.iceberg = iceberg
        self._options: dict[str, Any] = {"nameserver": broker.nameserver, "topics": [self.topic]}
        broker.create(self.topic, 2)

    def send(self, *bodies: str) -> None:
        for at, body in enumerate(bodies):
            self.broker.send(self.topic, [body], at % 2)

    def archive(self, **options: Any) -> Any:
        return self.iceberg.archive(self._name, **self._options, **options)

    def view(self, name: str, **options: Any) -> None:
        self.iceberg.view(
            name,
            self._name,
            nameserver=self.broker.nameserver,
            topics=[self.topic],
            **options,
        )

    def twice(self) -> list[Any]:
        return self.iceberg.twice(self._name, **self._options)

    def rows(self, what: str, rest: str = "") -> list[list[Any]]:
        return self.iceberg.rows(f"SELECT {what} FROM {self.table} {rest}")

    def bodies(self, rest: str = "") -> list[str]:
        return sorted(body for (body,) in self.rows("CAST(body AS STRING)", rest))

    def call(self, procedure: str, arguments: str = "") -> str:
        """A procedure of Iceberg's, as SQL."""
        return f"CALL lake.system.{procedure}(table => 'db.`{self.topic}`'{arguments})"

    def head(self) -> int:
        ((snapshot,),) = self.iceberg.rows(
            f"SELECT snapshot_id FROM {self.table}.refs WHERE name = 'main'"
        )
        assert isinstance(snapshot, int)
        return snapshot

    def branches(self) -> list[list[Any]]:
        return self.iceberg.rows(f"SELECT name FROM {self.table}.refs WHERE name <> 'main'")

    def command(self) -> list[str]:
        warehouse = str(self.iceberg.warehouse)
        return [
            *(str(self.iceberg.python), "-m", "rockhopper.pipeline", "archive"),
            *(f"iceberg:{self._name}", "--warehouse", warehouse, "--topic", self.topic),
            *("--nameserver", self.broker.nameserver, "--quiet", "--master", "local[2]"),
        ]

    def metadata(self) -> int:
        """How many commits the table has had."""
        directory = self.iceberg.warehouse / "db" / self.topic / "metadata"
        return len(list(directory.glob("v*.metadata.json")))


@pytest.fixture
def archived(broker: PipelineBroker, iceberg: IcebergSession) -> Archived:
    return Archived(broker, iceberg)


def test_runs_add_what_is_new_and_old_states_can_be_read(archived: Archived) -> None:
    archived.send("a", "b")
    assert archived.archive() == 2
    first = archived.head()
    ((moment,),) = archived.iceberg.rows("SELECT CAST(current_timestamp() AS STRING)")

    assert archived.archive() == 0
    assert archived.head() == first

    archived.send("c")
    assert archived.archive() == 1
    assert archived.bodies() == ["a", "b", "c"]
    assert archived.bodies(f"VERSION AS OF {first}") == ["a", "b"]
    assert archived.bodies(f"TIMESTAMP AS OF '{moment}'") == ["a", "b"]
    partitions = archived.iceberg.rows(f"SELECT partition.topic FROM {archived.table}.partitions")
    assert partitions == [[archived.topic]]
    assert archived.branches() == []


def schema(**properties: Any) -> dict[str, str]:
    return {"decode": "json", "schema": json.dumps({"properties": properties})}


def test_fields_are_added_and_none_goes(archived: Archived) -> None:
    number, text = {"type": "integer"}, {"type": "string"}
    place = {"type": "object", "properties": {"city": text}}
    archived.send('{"id": 1}')
    assert archived.archive() == 1
    archived.send('{"id": 2}')
    assert archived.archive(**schema(id=number)) == 1
    archived.send('{"id": 3, "place": {"city": "x"}, "items": [{"n": 1}]}')
    items = {"type": "array", "items": {"type": "object", "properties": {"n": number}}}
    assert archived.archive(**schema(id=number, place=place, items=items)) == 1
    archived.send('{"place": {"city": "y", "zip": "z"}, "id": 4, "items": [{"n": 2, "m": 3}]}')
    place["properties"] = {"zip": text, "city": text}
    items["items"] = {"type": "object", "properties": {"n": number, "m": number}}
    assert archived.archive(**schema(place=place, id=number, items=items)) == 1
    archived.send("no JSON", '{"id": 5}')
    assert archived.archive() == 2

    found = archived.rows(
        "value.id, value.place.city, value.place.zip, value.items[0].n, value.items[0].m",
        "ORDER BY storeTimestamp, queueId",
    )

    assert found == [
        [None, None, None, None, None],
        [2, None, None, None, None],
        [3, "x", None, 1, None],
        [4, "y", "z", 2, 3],
        [None, None, None, None, None],
        [5, None, None, None, None],
    ]
    archived.send("{}")
    assert "value.place, which the schema does not name any more" in archived.archive(
        **schema(id=number)
    )
    assert "value.id is bigint in lake.db." in archived.archive(
        **schema(id=text, place=place, items=items)
    )
    archived.send("no JSON")
    refused = schema(id=number, place=place, items=items) | {"bad_values": "fail"}
    assert "does not decode as json by the schema" in archived.archive(**refused)
    assert len(archived.rows("1")) == 6


def test_it_goes_on_after_compaction_expiry_and_rollback(archived: Archived) -> None:
    archived.send("a", "b")
    archived.archive()
    archived.send("c")
    archived.archive()
    before = archived.head()
    archived.send("d")
    assert archived.archive() == 1

    archived.iceberg.rows(archived.call("rollback_to_snapshot", f", snapshot_id => {before}"))
    assert archived.bodies() == ["a", "b", "c"]
    assert archived.archive() == 1

    everything = ", options => map('rewrite-all', 'true')"
    archived.iceberg.rows(archived.call("rewrite_data_files", everything))
    expiry = ", older_than => TIMESTAMP '2999-01-01 00:00:00', retain_last => 1"
    archived.iceberg.rows(archived.call("expire_snapshots", expiry))
    assert archived.iceberg.rows(
        f"SELECT operation, summary['rockhopper.position'] FROM {archived.table}.snapshots"
    ) == [["replace", None]]
    archived.send("e")
    assert archived.archive() == 1
    assert archived.bodies() == ["a", "b", "c", "d", "e"]

    archived.iceberg.rows(archived.call("rewrite_data_files", everything))
    compacted = archived.head()
    archived.send("f")
    assert archived.archive() == 1
    archived.iceberg.rows(archived.call("rollback_to_snapshot", f", snapshot_id => {compacted}"))
    archived.iceberg.rows(archived.call("expire_snapshots", expiry))
    assert "no snapshot of lake.db." in archived.archive()


def test_of_two_runs_at_once_one_gets_in(archived: Archived) -> None:
    archived.send("a", "b", "c")
    for bodies in (["a", "b", "c"], ["a", "b", "c", "d"]):
        said = archived.archive(meanwhile="archive")
        assert "another run has added to lake.db." in said
        assert archived.bodies() == bodies
        archived.send("d")
    assert archived.branches() == []
    assert archived.archive() == 1

    archived.send("e", "f")
    found = archived.twice()
    assert archived.bodies() == ["a", "b", "c", "d", "d", "e", "f"]
    assert 2 in found


def test_other_commits_in_between_make_it_write_once_more(archived: Archived) -> None:
    archived.send("a", "b")
    archived.archive()
    archived.send("c")
    compaction = archived.call("rewrite_data_files", ", options => map('rewrite-all', 'true')")
    assert archived.archive(meanwhile=compaction) == 1
    archived.send("d")
    change = f"ALTER TABLE {archived.table} SET TBLPROPERTIES ('theirs' = '1')"
    assert archived.archive(meanwhile=change) == 1

    assert archived.bodies() == ["a", "b", "c", "d"]
    assert archived.archive() == 0


def test_a_topic_that_was_made_anew_is_refused(archived: Archived) -> None:
    archived.send("a", "b")
    archived.archive()
    archived.broker.delete(archived.topic)
    archived.broker.create(archived.topic, 2)
    archived.send("c", "d", "e")

    assert archived.archive().endswith("archive it into another table")
    assert archived.bodies() == ["a", "b"]


@pytest.mark.long
def test_a_driver_is_killed_around_the_commit(archived: Archived) -> None:
    """At a commit of the run (its branch, its rows, main), or a little later."""
    archived.send("0", "1")
    archived.archive()
    lot = random.Random()
    for number in range(3):
        archived.send(f"{2 * number + 2}", f"{2 * number + 3}")
        moment = archived.metadata() + number + 1
        process = subprocess.Popen(
            archived.command(),
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )
        while process.poll() is None and archived.metadata() < moment:
            try:
                process.wait(0.002)
            except subprocess.TimeoutExpired:
                continue
        try:
            process.wait(lot.random() / 20)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()

    archived.archive()

    assert archived.bodies() == [str(number) for number in range(8)]
    assert archived.archive() == 0


def test_history_and_what_is_live_are_one_view(archived: Archived) -> None:
    archived.send(*numbered(0, 6))
    assert archived.archive() == 6
    archived.send(*numbered(6, 10))
    archived.view("both")
    found = archived.iceberg.rows("SELECT CAST(body AS STRING), date FROM both ORDER BY 1")
    assert [body for body, _ in found] == numbered(0, 10)
    assert all(date for _, date in found)
    archived.view("some", where="queueId = 1", columns="body,queueId")
    assert archived.iceberg.rows("SELECT count(*), max(queueId) FROM some") == [[5, 1]]
