"""Traces: which functions run, and what makes two ways of them."""

import json

import pytest

from rockhopper.protocol.names import tag_error
from rockhopper.protocol.properties import parse_whole_number
from tests.house import traces
from tests.house.traces import Tracer


def test_functions_of_ours_are_noted_and_others_are_not() -> None:
    with Tracer() as tracer:
        parse_whole_number("1")
        json.dumps({})
    assert tracer.functions == {"protocol/properties.py parse_whole_number"}


def test_a_timer_that_ran_once_is_no_part_of_the_request() -> None:
    tracers = [Tracer(), Tracer()]
    for tracer in tracers:
        with tracer:
            parse_whole_number("1")
    with tracers[0]:
        tag_error("")
    assert traces.common(tracers) == ["protocol/properties.py parse_whole_number"]


def test_files_are_counted_once() -> None:
    assert traces.files_of(["a.py f", "a.py g", "b.py <lambda>"]) == ["a.py", "b.py"]


@pytest.mark.parametrize(("shared", "ways"), [(10, 1), (9, 1), (8, 2), (0, 2)])
def test_ways_are_the_same_when_nine_tenths_are(shared: int, ways: int) -> None:
    first = [f"f{n}" for n in range(10)]
    second = first[:shared] + ["other"] * (shared in (0, 8))
    assert traces.ways([first, second, first]) == ways


async def test_a_general_send_is_dispatched_and_what_recovers_is_in_the_store() -> None:
    found = await traces.trace()
    assert any("Dispatcher.dispatch" in each for each in found["general send"])
    assert "protocol/frame.py FrameDecoder.feed" in found["plain send"]
    assert all(not each.startswith("client/") for each in found["general pull"])
    store = [each for each in found["recovery"] if each.startswith("broker/store/")]
    assert len(store) > len(found["recovery"]) / 2
