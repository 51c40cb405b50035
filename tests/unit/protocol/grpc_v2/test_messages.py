"""The messages, from their own descriptors."""

import subprocess
import sys

import pytest
from google.protobuf import descriptor_pool

from rockhopper.protocol.grpc_v2 import messages
from rockhopper.protocol.grpc_v2.codes import Code
from rockhopper.protocol.grpc_v2.messages import METHODS, PACKAGE, Message, Status


def test_every_rpc_is_there_with_its_streams() -> None:
    assert len(METHODS) == 17
    streaming = {name for name, method in METHODS.items() if method.streams_replies}
    assert streaming == {"ReceiveMessage", "PullMessage", "Telemetry"}
    assert [name for name, method in METHODS.items() if method.streams_requests] == ["Telemetry"]


def test_codes_have_the_numbers_of_the_definition() -> None:
    numbers = Status.DESCRIPTOR.fields_by_name["code"].enum_type.values_by_name
    for code in Code:
        assert numbers[code.name].number == code


def test_a_field_has_its_number() -> None:
    """Bytes as RocketMQ's own clients write them: message_id is 3 in field 3, of type 2."""
    message = Message()
    message.system_properties.message_id = "ID"
    message.system_properties.queue_offset = 5
    assert message.SerializeToString() == bytes.fromhex("1a061a0249447005")


def test_the_common_pool_is_left_alone() -> None:
    with pytest.raises(KeyError):
        descriptor_pool.Default().FindMessageTypeByName(f"{PACKAGE}.Message")


def test_the_descriptors_are_what_the_definition_makes() -> None:
    pytest.importorskip("grpc_tools")
    check = [sys.executable, "-m", f"{messages.__package__}", "--check"]
    subprocess.run(check, check=True)
