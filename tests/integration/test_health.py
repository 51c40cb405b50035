"""/healthz, /readyz and /metrics, and what the port answers to those who speak no HTTP."""

import asyncio
import json

import pytest

from rockhopper.broker import Broker
from rockhopper.broker.kernel.tables.topics import TopicConfig
from rockhopper.broker.store.files.errors import StoreFailedError
from rockhopper.client import Admin
from rockhopper.protocol.codes import RequestCode
from tests.support.direct import pull, send
from tests.support.wire import WireClient


async def raw(address: str, request: bytes) -> bytes:
    """Everything that comes back until the port closes the connection."""
    host, _, port = address.rpartition(":")
    reader, writer = await asyncio.open_connection(host, int(port))
    writer.write(request)
    answer = await reader.read(-1)
    writer.close()
    return answer


async def get(broker: Broker, path: str) -> tuple[int, str]:
    """Status and body of a page."""
    request = f"GET {path} HTTP/1.1\r\nHost: localhost\r\n\r\n".encode()
    head, _, body = (await raw(broker.http_address, request)).partition(b"\r\n\r\n")
    assert f"Content-Length: {len(body)}".encode() in head
    return int(head.split()[1]), body.decode()


async def test_a_running_broker_is_healthy_and_ready(broker: Broker) -> None:
    assert await get(broker, "/healthz") == (200, "ok\n")
    assert await get(broker, "/readyz?verbose=1") == (200, "ok\n")


async def test_a_failed_store_is_unhealthy_and_says_why(broker: Broker) -> None:
    broker.store.failure = StoreFailedError("the disk did not keep what it was given")
    for path in ("/healthz", "/readyz"):
        assert await get(broker, path) == (503, "the disk did not keep what it was given\n")
    broker.store.failure = None


async def test_a_full_disk_is_not_ready_and_yet_healthy(broker: Broker) -> None:
    broker.store.retention.space.full_reason = "the disk is 91 percent full"
    assert await get(broker, "/readyz") == (503, "the disk is 91 percent full\n")
    assert (await get(broker, "/healthz"))[0] == 200


async def test_metrics_count_what_was_sent_pulled_and_left_behind(broker: Broker) -> None:
    for _ in range(3):
        await send(broker.address, "orders", b"hello")
    await pull(broker.address, "orders")
    broker.tables.offsets.commit("orders", "billing", 0, 1)
    status, text = await get(broker, "/metrics")
    assert status == 200
    lines = set(text.splitlines())
    assert (
        'rocketmq_messages_in_total{cluster="DefaultCluster",node_id="broker-a",'
        'node_type="broker",topic="orders",is_system="false"} 3.0'
    ) in lines
    assert any(line.startswith("rocketmq_messages_out_total{") for line in lines)
    (lag,) = [line for line in lines if line.startswith("rocketmq_consumer_lag_messages{")]
    assert 'consumer_group="billing"' in lag
    assert 'online="false"' in lag
    assert lag.endswith(" 2.0")
    assert any(line.startswith("process_resident_memory_bytes ") for line in lines)


async def lag_of(broker: Broker, group: str) -> dict[str, float]:
    """Topic -> what /metrics says a group has not acknowledged."""
    found = {}
    for line in (await get(broker, "/metrics"))[1].splitlines():
        if line.startswith("rocketmq_consumer_lag_messages{") and f'"{group}"' in line:
            labels, _, value = line.rpartition(" ")
            found[labels.partition('topic="')[2].partition('"')[0]] = float(value)
    return found


async def test_lag_counts_queues_without_a_commit_as_the_command_line_does(
    broker: Broker,
) -> None:
    broker.tables.topics.put(TopicConfig("orders", read_queue_nums=4, write_queue_nums=4))
    for queue_id in (0, 0, 0, 1, 1, 3):
        await send(broker.address, "orders", b"hello", queue_id=queue_id)
    broker.tables.offsets.commit("orders", "billing", 0, 1)
    async with Admin(nameserver=broker.nameserver) as admin:
        told = await admin.groups.lag("billing")
    assert await lag_of(broker, "billing") == {"orders": 5.0}
    assert sum(each.lag for each in told) == 5


async def test_lag_of_a_group_that_has_just_begun_is_everything(broker: Broker) -> None:
    for _ in range(3):
        await send(broker.address, "orders", b"hello")
    subscription = {"topic": "orders", "subString": "*", "subVersion": 1}
    for group, model in (("starters", "CLUSTERING"), ("listeners", "BROADCASTING")):
        consumer = {
            "groupName": group,
            "consumeType": "CONSUME_PASSIVELY",
            "messageModel": model,
            "consumeFromWhere": "CONSUME_FROM_LAST_OFFSET",
            "subscriptionDataSet": [subscription],
        }
        body = json.dumps({"clientID": group, "consumerDataSet": [consumer]}).encode()
        async with WireClient(broker.address) as client:
            await client.ask(RequestCode.HEART_BEAT, None, body)
            lag = await lag_of(broker, group)
        assert lag == ({"orders": 3.0} if model == "CLUSTERING" else {})


async def test_head_gets_no_body(broker: Broker) -> None:
    answer = await raw(broker.http_address, b"HEAD /healthz HTTP/1.1\r\n\r\n")
    assert answer.startswith(b"HTTP/1.1 200 OK\r\n")
    assert answer.endswith(b"\r\n\r\n")


@pytest.mark.parametrize(
    ("request_bytes", "status"),
    [
        (b"GET /nothing HTTP/1.1\r\n\r\n", 404),
        (b"POST /healthz HTTP/1.1\r\n\r\n", 405),
        (b"hello\r\n\r\n", 400),
        (b"\x00\x01\n\n", 400),
        (b"GET / HTTP/1.1\r\n" + b"x" * 9000, 400),
    ],
)
async def test_bad_requests_get_a_status(broker: Broker, request_bytes: bytes, status: int) -> None:
    answer = await raw(broker.http_address, request_bytes)
    assert answer.startswith(f"HTTP/1.1 {status} ".encode())


async def test_a_page_that_fails_is_500_and_the_broker_lives_on(
    broker: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken() -> None:
        raise RuntimeError("a mistake of ours")

    with monkeypatch.context() as patched:
        patched.setattr(broker.store, "check_writable", broken)
        assert (await get(broker, "/readyz"))[0] == 500
    assert (await get(broker, "/readyz"))[0] == 200


async def test_no_port_is_opened_when_none_is_wanted() -> None:
    async with Broker.temporary({"httpPort": -1}) as broker:
        assert broker.http_address == ""


async def test_metrics_tell_how_long_the_event_loop_was_kept(broker: Broker) -> None:
    broker.metrics_page.stalls.count, broker.metrics_page.stalls.longest_s = 3, 0.25
    _, text = await get(broker, "/metrics")
    values = {line.split("{")[0]: line.rsplit(" ", 1)[1] for line in text.splitlines()}
    assert float(values["rockhopper_stalls_total"]) >= 3
    assert float(values["rockhopper_stall_longest_seconds"]) >= 0.25
