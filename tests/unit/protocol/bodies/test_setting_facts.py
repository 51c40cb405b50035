"""The body of DESCRIBE_CONFIG."""

import pytest

from rockhopper.protocol.bodies.setting_facts import SettingFacts, decode_facts, encode_facts
from rockhopper.protocol.errors import MalformedBodyError


def test_what_was_encoded_is_decoded_with_its_types() -> None:
    facts = [
        SettingFacts("fileReservedTime", 48, 72, "hours", True, True),
        SettingFacts("longPollingEnable", True, True, "", True, False),
        SettingFacts("brokerName", "broker-a", "broker-a", "", False, False),
    ]
    assert decode_facts(encode_facts(facts)) == facts


@pytest.mark.parametrize("body", [b"", b"\x91\x91\x01", b"\xff"])
def test_what_is_no_body_is_said(body: bytes) -> None:
    with pytest.raises(MalformedBodyError, match="does not decode"):
        decode_facts(body)
