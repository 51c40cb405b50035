"""A stream knows whether its answer is known."""

from rockhopper.protocol.http2.streams import Stream


def test_an_answer_is_known_once_its_end_is() -> None:
    stream = Stream(1, 10, 20)
    assert not stream.is_answered
    stream.trailers = b""
    assert stream.is_answered
