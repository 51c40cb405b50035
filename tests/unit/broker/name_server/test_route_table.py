"""RouteTable: who registers, what becomes routable, and what goes with a broker that is gone."""

from pathlib import Path

import pytest
from structlog.testing import capture_logs

from rockhopper.broker.kernel.tables.json_table import TableVersion
from rockhopper.broker.kernel.tables.topics import TopicConfig, TopicTable
from rockhopper.broker.name_server import route_table as module
from rockhopper.broker.name_server.advertisement import ALONE, Advertisement
from rockhopper.broker.name_server.embedded import EmbeddedBroker
from rockhopper.broker.name_server.route_table import (
    DEPARTED_MAX,
    TOPICS_PER_STEP,
    Accepted,
    Registration,
    RouteTable,
)
from rockhopper.broker.server.loop.cooperative_work import run_at_once
from rockhopper.broker.settings.broker_config import BrokerConfig
from rockhopper.broker.users.errors import Refusal

NOW = 1_700_000_000_000


def topics(*names: str, perm: int = 6, queues: int = 4) -> dict[str, TopicConfig]:
    return {
        name: TopicConfig(name, read_queue_nums=queues, write_queue_nums=queues, perm=perm)
        for name in names
    }


def registration(
    name: str = "broker-b",
    *names: str,
    broker_id: int = 0,
    address: str = "10.0.0.2:10911",
    counter: int = 1,
    state: int = 0,
    timeout_ms: int | None = None,
    acting_master: bool | None = None,
) -> Registration:
    return Registration(
        cluster="C",
        name=name,
        broker_id=broker_id,
        address=address,
        ha_address=address.replace("10911", "10912"),
        timeout_ms=timeout_ms,
        acting_master=acting_master,
        version=TableVersion(counter, NOW, state),
        topics=topics(*(names or ("orders", "TBW102"))),
    )


def addresses(table: RouteTable, topic: str) -> dict[str, dict[int, str]]:
    route = table.route(topic, "")
    return {member.name: member.addresses for member in route.members} if route else {}


def test_a_registered_broker_is_on_the_route() -> None:
    table = RouteTable()
    assert table.register(registration(), NOW) == Accepted()
    route = table.route("orders", "")
    assert route is not None
    assert [tuple(queues) for queues in route.queues] == [("broker-b", 4, 4, 6, 0)]
    assert addresses(table, "orders") == {"broker-b": {0: "10.0.0.2:10911"}}
    assert table.route("unknown", "") is None


def test_a_topic_on_two_brokers_has_the_queues_of_both() -> None:
    table = RouteTable()
    table.register(registration(), NOW)
    table.register(registration("broker-c", address="10.0.0.3:10911"), NOW)
    assert list(addresses(table, "orders")) == ["broker-b", "broker-c"]


def test_a_first_registration_of_a_single_topic_is_refused() -> None:
    table = RouteTable()
    assert table.register(registration("broker-b", "orders"), NOW) is None
    assert table.route("orders", "") is None
    table.register(registration(), NOW)
    assert table.register(registration("broker-b", "new", counter=2), NOW) is not None
    assert table.route("new", "") is not None
    assert table.route("orders", "") is not None


def test_topics_change_only_with_the_version_unless_they_are_new() -> None:
    table = RouteTable()
    table.register(registration(), NOW)
    again = registration()
    again.topics = topics("orders", "more", queues=8)
    table.register(again, NOW)
    orders, more = table.route("orders", ""), table.route("more", "")
    assert orders is not None
    assert orders.queues[0].read_queue_nums == 4
    assert more is not None
    assert more.queues[0].read_queue_nums == 8
    again.version = TableVersion(2, NOW)
    table.register(again, NOW)
    orders = table.route("orders", "")
    assert orders is not None
    assert orders.queues[0].read_queue_nums == 8


@pytest.mark.parametrize("forget", [True, False])
def test_topics_that_are_no_longer_named_go_only_if_the_settings_say_so(forget: bool) -> None:
    table = RouteTable(forget_missing_topics=forget)
    table.register(registration(), NOW)
    table.register(registration("broker-b", "TBW102", "new", counter=2), NOW)
    assert (table.route("orders", "") is None) is forget


def test_an_unregistered_broker_takes_its_topics_along() -> None:
    table = RouteTable()
    table.register(registration(), NOW)
    table.register(registration("broker-c", "orders", "c", address="10.0.0.3:10911"), NOW)
    assert table.unregister("C", "10.0.0.2:10911")
    assert not table.unregister("C", "10.0.0.2:10911")
    assert list(addresses(table, "orders")) == ["broker-c"]
    assert table.route("TBW102", "") is None
    assert [member.name for member in table.members("")] == ["broker-c"]


def test_brokers_that_went_are_remembered_until_they_return() -> None:
    table = RouteTable()
    assert table.departed == []
    table.register(registration(), NOW)
    table.register(registration("broker-c", address="10.0.0.3:10911"), NOW, "connection")
    table.register(registration("broker-d", address="10.0.0.4:10911"), NOW)
    table.connection_lost("connection")
    table.unregister("C", "10.0.0.2:10911")
    assert table.departed == ["broker-c", "broker-b"]
    table.register(registration("broker-c", address="10.0.0.7:10911"), NOW)
    assert table.departed == ["broker-b"]
    table.expire(NOW + 120_001)
    assert table.departed == ["broker-b", "broker-d", "broker-c"]
    assert table.list_departed_ages_ms(NOW + 120_005)["broker-b"] == 120_005


def test_no_flood_of_names_is_remembered() -> None:
    table = RouteTable()
    for number in range(DEPARTED_MAX + 2):
        table.register(registration(f"b{number}", address=f"10.0.0.2:{number}"), NOW)
        table.unregister("C", f"10.0.0.2:{number}")
    assert len(table.departed) == DEPARTED_MAX
    assert table.departed[0] == "b2"


def test_a_slave_keeps_the_name_alive_when_its_master_goes() -> None:
    table = RouteTable()
    table.register(registration(), NOW)
    slave = registration(broker_id=1, address="10.0.0.9:10911")
    assert table.register(slave, NOW) == Accepted("10.0.0.2:10911", "10.0.0.2:10912")
    table.unregister("C", "10.0.0.2:10911")
    assert addresses(table, "orders") == {"broker-b": {1: "10.0.0.9:10911"}}
    assert table.departed == []
    assert table.register(slave, NOW) == Accepted()


def test_a_slave_brings_no_topics_but_an_acting_master_does_read_only() -> None:
    table = RouteTable()
    table.register(registration("broker-b", "a", "b", broker_id=1), NOW)
    assert table.route("a", "") is None
    table.register(
        registration("broker-c", "a", "b", broker_id=1, address="x:1", acting_master=True), NOW
    )
    route = table.route("a", "")
    assert route is not None
    assert route.queues[0].perm == 4


def test_one_address_holds_one_id() -> None:
    table = RouteTable()
    table.register(registration(broker_id=1), NOW)
    table.register(registration(broker_id=0), NOW)
    assert addresses(table, "orders") == {"broker-b": {0: "10.0.0.2:10911"}}


def test_a_newer_master_elsewhere_is_not_replaced_by_an_older_one() -> None:
    table = RouteTable()
    table.register(registration(state=2), NOW)
    table.register(registration(address="10.0.0.7:10911", state=1), NOW)
    assert addresses(table, "orders") == {"broker-b": {0: "10.0.0.2:10911"}}
    table.register(registration(address="10.0.0.7:10911", state=2), NOW)
    assert addresses(table, "orders") == {"broker-b": {0: "10.0.0.7:10911"}}


def test_a_deposed_master_that_comes_late_takes_nobody_out() -> None:
    table = RouteTable()
    old, new = object(), object()
    master = registration(state=1)
    successor = registration(address="10.0.0.7:10911", state=2)
    table.register(master, NOW, old)
    with capture_logs() as logs:
        table.register(successor, NOW, new)
    assert "two brokers register with the same name" not in str(logs)
    table.register(master, NOW, old)
    table.unregister("C", master.address, old)
    table.connection_lost(old)
    assert addresses(table, "orders") == {"broker-b": {0: "10.0.0.7:10911"}}


def test_no_master_of_an_earlier_epoch_than_its_followers_is_taken() -> None:
    table = RouteTable()
    table.register(registration(state=1), NOW)
    table.register(registration(broker_id=1, state=2), NOW)
    table.register(registration(state=1), NOW)
    assert addresses(table, "orders") == {"broker-b": {1: "10.0.0.2:10911"}}
    table.register(registration(broker_id=2, address="10.0.0.7:10911", state=1), NOW)
    table.register(registration(address="10.0.0.7:10911", state=3), NOW)
    assert addresses(table, "orders") == {"broker-b": {0: "10.0.0.7:10911", 1: "10.0.0.2:10911"}}


def test_what_another_broker_registered_at_an_address_is_not_unregistered() -> None:
    table = RouteTable()
    first, second = object(), object()
    table.register(registration(state=1), NOW, first)
    table.register(registration(state=2), NOW, second)
    assert not table.unregister("C", "10.0.0.2:10911", first)
    assert table.unregister("C", "10.0.0.2:10911", second)


def test_silence_ends_a_registration_and_any_sign_of_life_prolongs_it() -> None:
    table = RouteTable(expiry_ms=120_000)
    connection = object()
    table.register(registration(), NOW, connection)
    assert table.expire(NOW + 120_000) == []
    table.heartbeat("C", "10.0.0.2:10911", NOW + 60_000)
    assert table.expire(NOW + 180_000) == []
    changed, known = table.query_version("C", "10.0.0.2:10911", TableVersion(1, NOW), NOW + 120_000)
    assert (changed, known) == (False, TableVersion(1, NOW))
    assert table.expire(NOW + 240_000) == []
    assert table.expire(NOW + 240_001) == [connection]
    assert table.route("orders", "") is None


def test_a_broker_names_its_own_time() -> None:
    table = RouteTable(expiry_ms=120_000)
    table.register(registration(timeout_ms=1000), NOW)
    assert table.expire(NOW + 1001) == [None]


def test_a_closed_connection_ends_what_was_registered_over_it_last() -> None:
    table = RouteTable()
    first, second = object(), object()
    table.register(registration(), NOW, first)
    table.register(registration(), NOW, second)
    table.connection_lost(first)
    assert table.route("orders", "") is not None
    table.connection_lost(second)
    assert table.route("orders", "") is None


def test_an_unknown_broker_has_to_register() -> None:
    assert RouteTable().query_version("C", "a:1", TableVersion(), NOW) == (True, None)
    RouteTable().heartbeat("C", "a:1", NOW)


def test_a_write_wipe_outlives_registrations_until_it_is_taken_back() -> None:
    table = RouteTable()
    table.register(registration(), NOW)
    assert table.set_write_wiped("broker-b", wiped=True) == 2
    table.register(registration(counter=2), NOW)
    route = table.route("orders", "")
    assert route is not None
    assert route.queues[0].perm == 4
    assert table.set_write_wiped("broker-b", wiped=False) == 2
    route = table.route("orders", "")
    assert route is not None
    assert route.queues[0].perm == 6


def test_topics_are_listed_by_cluster_and_deleted() -> None:
    table = RouteTable()
    table.register(registration("broker-b", "a", "b"), NOW)
    assert sorted(run_at_once(table.topic_names())) == ["a", "b"]
    assert sorted(run_at_once(table.topic_names("C"))) == ["a", "b"]
    assert sorted(run_at_once(table.topic_names("D"))) == []
    table.delete_topic("a", "D")
    assert sorted(run_at_once(table.topic_names())) == ["a", "b"]
    table.delete_topic("a")
    table.delete_topic("nowhere")
    assert sorted(run_at_once(table.topic_names())) == ["b"]


def test_a_single_topic_is_taken_of_registered_brokers_only() -> None:
    table = RouteTable()
    table.register(registration(), NOW)
    table.add_topic("broker-b", TopicConfig("new"))
    table.add_topic("broker-x", TopicConfig("new"))
    assert list(addresses(table, "new")) == ["broker-b"]


@pytest.fixture
def local_topics(tmp_path: Path) -> TopicTable:
    topics = TopicTable(tmp_path / "topics.json", BrokerConfig())
    topics.seed_system_topics()
    return topics


def with_local(
    topics: TopicTable, permission: int = 6, advertisement: Advertisement = ALONE
) -> RouteTable:
    local = EmbeddedBroker(
        "DefaultCluster",
        "broker-a",
        "instance",
        topics=topics,
        permission=lambda: permission,
        address_for=lambda _connection: "",
        advertisement=lambda: advertisement,
    )
    return RouteTable(local=local)


def test_a_topic_of_the_broker_in_this_process_is_routable_at_once(
    local_topics: TopicTable,
) -> None:
    table = with_local(local_topics)
    assert table.route("orders", "127.0.0.1:10911") is None
    local_topics.put(TopicConfig("orders", read_queue_nums=2, write_queue_nums=2))
    route = table.route("orders", "127.0.0.1:10911")
    assert route is not None
    assert tuple(route.queues[0]) == ("broker-a", 2, 2, 6, 0)
    assert route.members[0].addresses == {0: "127.0.0.1:10911"}
    table.register(registration(), NOW)
    assert list(addresses(table, "orders")) == ["broker-a", "broker-b"]
    local_topics.delete("orders")
    assert list(addresses(table, "orders")) == ["broker-b"]


def of_set(*names: str, address: str, broker_id: int = 0, state: int = 0) -> Registration:
    made = registration("broker-a", *names, address=address, broker_id=broker_id, state=state)
    made.cluster = "DefaultCluster"
    return made


def test_a_follower_answers_with_the_master_of_its_view_and_who_registered(
    local_topics: TopicTable,
) -> None:
    local_topics.put(TopicConfig("orders", read_queue_nums=2, write_queue_nums=2))
    advertisement = Advertisement(1, elected_in=5, elected_id=2, addresses={2: "10.0.0.2:10911"})
    table = with_local(local_topics, advertisement=advertisement)
    table.register(of_set(address="10.0.0.4:10911", state=4), NOW)
    table.register(of_set(address="10.0.0.3:10911", broker_id=3, state=4), NOW)
    route = table.route("orders", "10.0.0.1:10911")
    assert route is not None
    assert [tuple(queues) for queues in route.queues] == [("broker-a", 2, 2, 6, 0)]
    shown = {0: "10.0.0.2:10911", 1: "10.0.0.1:10911", 3: "10.0.0.3:10911"}
    assert [member.addresses for member in route.members] == [shown]
    assert [member.addresses for member in table.members("10.0.0.1:10911")] == [shown]
    table.unregister("DefaultCluster", "10.0.0.3:10911")
    table.unregister("DefaultCluster", "10.0.0.4:10911")
    assert table.departed == []


def test_a_topic_that_only_the_master_has_yet_is_routable_at_a_follower(
    local_topics: TopicTable,
) -> None:
    table = with_local(local_topics, advertisement=Advertisement(1))
    table.register(of_set("new", "old", address="10.0.0.2:10911", state=5), NOW)
    assert addresses(table, "new") == {"broker-a": {0: "10.0.0.2:10911", 1: ""}}
    assert local_topics.get("new") is None


def test_what_the_broker_may_not_do_its_routes_do_not_promise(local_topics: TopicTable) -> None:
    local_topics.put(TopicConfig("orders"))
    route = with_local(local_topics, permission=4).route("orders", "")
    assert route is not None
    assert route.queues[0].perm == 4
    table = with_local(local_topics)
    assert table.set_write_wiped("broker-a", wiped=True) == len(local_topics)
    route = table.route("orders", "")
    assert route is not None
    assert route.queues[0].perm == 4


def test_a_long_registration_is_taken_in_steps_and_ends_with_its_broker() -> None:
    table = RouteTable()
    connection = object()
    names = [f"topic-{number}" for number in range(3 * TOPICS_PER_STEP)]
    steps = table.register_in_steps(registration("broker-b", *names), NOW, connection)
    next(steps)
    assert table.route(names[0], "") is not None
    assert table.route(names[TOPICS_PER_STEP], "") is None
    table.connection_lost(connection)
    assert run_at_once(steps) == Accepted()
    assert run_at_once(table.topic_names()) == set()
    again = table.register_in_steps(registration("broker-b", *names), NOW, connection)
    assert (len(list(again)), len(list(table.topic_names()))) == (3, 3)
    assert run_at_once(table.topic_names()) == set(names)


def many(number: int, *names: str) -> Registration:
    return registration(
        f"b{number}", *(names or ("orders", "TBW102")), address=f"10.0.0.2:{number}"
    )


def test_one_connection_registers_no_flood_of_brokers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "BROKERS_PER_CONNECTION_MAX", 2)
    table = RouteTable()
    for number in (1, 2):
        table.register(many(number), NOW, "one")
    with capture_logs() as logs, pytest.raises(Refusal, match="over this connection"):
        table.register(many(3), NOW, "one")
    assert [line["event"] for line in logs] == ["registration refused"]
    table.register(many(2), NOW, "one")
    table.register(many(3), NOW, "another")
    table.unregister("C", "10.0.0.2:1", "one")
    table.register(many(4), NOW, "one")
    table.connection_lost("one")
    assert [member.name for member in table.members("")] == ["b3"]


def test_all_connections_together_register_no_flood_of_brokers(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(module, "BROKERS_MAX", 2)
    table = RouteTable()
    for number in (1, 2):
        table.register(many(number), NOW, number)
    with pytest.raises(Refusal, match="2 brokers are registered"):
        table.register(many(3), NOW, 3)
    assert len(table.members("")) == 2
    table.connection_lost(1)
    table.register(many(3), NOW, 3)


def test_one_connection_registers_no_flood_of_topics(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "TOPICS_PER_CONNECTION_MAX", 5)
    table = RouteTable()
    table.register(many(1, "a", "b"), NOW, "one")
    table.register(many(2, "a", "b"), NOW, "one")
    with pytest.raises(Refusal, match="at most 5 topics"):
        table.register(many(3, "a", "b"), NOW, "one")
    table.register(many(3, "a", "b"), NOW, "another")
    assert len(table.members("")) == 3


def test_a_broker_that_may_not_register_more_keeps_what_it_has(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(module, "TOPICS_MAX", 3)
    table = RouteTable()
    table.register(many(1, "a", "b"), NOW, "one")
    with pytest.raises(Refusal, match="all brokers together register at most 3 topics"):
        table.register(many(1, "c", "d"), NOW + 100_000, "one")
    table.expire(NOW + 200_000)
    assert table.route("a", "") is not None
    assert table.route("c", "") is None
    table.add_topic("b1", TopicConfig("c"))
    with pytest.raises(Refusal, match="at most 3 topics"):
        table.add_topic("b1", TopicConfig("d"))
    assert table.route("d", "") is None


def test_an_address_that_registers_under_another_name_leaves_the_former_one() -> None:
    table = RouteTable()
    for name in ("first", "second"):
        table.register(registration(name), NOW, "one")
    assert [member.name for member in table.members("")] == ["second"]
    assert addresses(table, "orders") == {"second": {0: "10.0.0.2:10911"}}


def test_a_name_that_nobody_has_is_not_kept_as_wiped() -> None:
    table = RouteTable()
    assert table.set_write_wiped("unknown", wiped=True) == 0
    table.register(registration("unknown"), NOW)
    route = table.route("orders", "")
    assert route is not None
    assert route.queues[0].perm == 6
