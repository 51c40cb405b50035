"""Elsewhere: what a visitor from another host may change of other processes of this one."""

import pytest

from rockhopper.broker.app import Broker
from rockhopper.client.admin.admin import Admin
from tests.support.console import Browser

CONSOLE = {
    "brokerName": "broker-here",
    "remoteAdmin": True,
    "proxyProtocol": True,
    "proxyProtocolFrom": "127.0.0.0/8",
}


@pytest.mark.parametrize("is_allowed", [False, True])
async def test_a_broker_of_another_process_is_as_closed_as_it_says(*, is_allowed: bool) -> None:
    async with Broker.temporary(CONSOLE) as console:
        settings = {
            "role": "broker",
            "namesrvAddr": console.nameserver,
            "brokerName": "broker-a",
            "remoteAdmin": is_allowed,
        }
        async with Broker.temporary(settings) as broker, Admin(console.nameserver) as admin:
            await broker.announce()
            await admin.create_topic("orders", queues=1)
            await admin.groups.create("billing")
            move = {"group": "billing", "topic": "orders", "to": "latest"}
            change = {"broker": "broker-a", "key": "brokerPermission", "value": "6"}
            visitor = Browser(console.http_address)
            token = await visitor.token()
            visitor.first = "PROXY TCP4 192.0.2.7 198.51.100.1 56324 9464\r\n"
            assert "192.0.2.7" in (await visitor.get("topics")).text
            assert ("disabled" in (await visitor.get("group/reset", **move)).source) != is_allowed
            for form, fields in (
                ("send", {"topic": "orders", "body": "x"}),
                ("group/reset", move),
                ("settings", change),
            ):
                answer = await visitor.post(form, token=token, **fields)
                assert answer.status == (303 if is_allowed else 403), answer.text
                told = (
                    "Changes to broker-a are only allowed from this host, but you are at 192.0.2.7"
                )
                assert (told in answer.text) != is_allowed
            assert (await visitor.get("settings")).status == (200 if is_allowed else 403)
            # Who is on this host changes it all the same.
            sent = await Browser(console.http_address).post("send", topic="orders", body="x")
            assert sent.status == 303, sent.text
