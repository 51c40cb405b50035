"""The body of FIGURES."""

import pytest

from rockhopper.protocol.bodies.stats import Figures, GroupFigures, TopicFigures
from rockhopper.protocol.errors import MalformedBodyError


def test_what_was_encoded_is_decoded() -> None:
    topic = TopicFigures("orders", 3, 1_700_000_000_000, 5, 0.5, 4, ["billing"])
    figures = Figures([topic], [GroupFigures("billing", 1, 2, 4, ["orders"])])
    assert Figures.decode(figures.encode()) == figures


@pytest.mark.parametrize("body", [b"", b"\x91", b"\x92\x01\x02", b"\xff" * 40])
def test_what_is_no_body_is_said(body: bytes) -> None:
    with pytest.raises(MalformedBodyError, match="does not decode"):
        Figures.decode(body)
