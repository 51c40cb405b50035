"""Notices, as clients of RocketMQ read them."""

from rockhopper.broker.server.remoting.notices import request_of
from rockhopper.broker.users.peer import ConsumersChanged
from rockhopper.protocol.codes import RequestCode


def test_members_of_a_changed_group_are_told_its_name() -> None:
    code, ext, body = request_of(ConsumersChanged("billing"))
    assert (code, ext, body) == (
        RequestCode.NOTIFY_CONSUMER_IDS_CHANGED,
        {"consumerGroup": "billing"},
        b"",
    )
    assert code == 40
