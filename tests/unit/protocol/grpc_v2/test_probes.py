"""What the messages of health checks and reflection are on the wire."""

import pytest

from rockhopper.protocol.grpc_v2.probes import CHECK, INFOS, files_of


def test_messages_are_those_of_grpc() -> None:
    assert CHECK.request(service="a").SerializeToString() == b"\x0a\x01a"
    assert CHECK.reply(status=1).SerializeToString() == b"\x08\x01"
    for info in INFOS.values():
        assert info.request.FromString(b"\x3a\x01*").list_services == "*"
        reply = info.reply()
        reply.list_services_response.service.add(name="S")
        assert reply.SerializeToString() == b"\x32\x05\x0a\x03\x0a\x01S"


def test_what_is_not_described_is_no_file() -> None:
    for wanted in ({"name": "x.proto"}, {"symbol": "x.Y"}):
        with pytest.raises(KeyError):
            files_of(**wanted)
