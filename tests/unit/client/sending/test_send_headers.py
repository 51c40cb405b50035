"""Headers of sends from templates: the same fields as from a dictionary, whatever they hold."""

from hypothesis import given
from hypothesis import strategies as st

from rockhopper.client.queues import MessageQueue
from rockhopper.client.sending.outgoing import OutgoingMessage
from rockhopper.client.sending.send_headers import SendHeaders, send_code, send_fields
from rockhopper.protocol.command import Command, decode_header
from rockhopper.protocol.headers.header_json import end_json_header

TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=20) | st.sampled_from(
    ["%d", "100%", "a\x01b\x02", '"\\', "ü"]
)
INT32 = st.integers(-(2**31), 2**31 - 1)
MESSAGES = st.builds(
    OutgoingMessage,
    TEXT,
    st.just(b""),
    TEXT,
    st.just("ID"),
    st.integers(0, 2**62),
    INT32,
    INT32,
    is_batch=st.booleans(),
)


def decoded(start: bytes) -> Command:
    return decode_header(0, start + end_json_header(12) % 5)


@given(group=TEXT, outgoing=MESSAGES, name=TEXT, queue_id=INT32)
def test_a_template_says_what_the_fields_say(
    group: str, outgoing: OutgoingMessage, name: str, queue_id: int
) -> None:
    target = MessageQueue(outgoing.topic, name, queue_id)
    headers = SendHeaders(group)
    for _ in range(2):  # the first call makes the template, the second one uses it
        command = decoded(headers.encode_start(outgoing, target))
        assert (command.code, command.opaque) == (send_code(outgoing), 5)
        assert command.ext == send_fields(group, outgoing, target)


def test_half_a_character_that_no_utf_8_can_hold_becomes_a_question_mark() -> None:
    outgoing = OutgoingMessage("orders", b"", "k\x01\ud800\x02", "ID", 0)
    ext = decoded(SendHeaders("g").encode_start(outgoing, MessageQueue("orders", "a", 0))).ext
    assert ext is not None
    assert ext["i"] == "k\x01?\x02"


def test_a_batch_and_a_message_have_templates_of_their_own() -> None:
    target = MessageQueue("orders", "a", 0)
    headers = SendHeaders("g")
    for number in range(3):
        for is_batch in (False, True):
            outgoing = OutgoingMessage("orders", b"", "", "ID", number, is_batch=is_batch)
            ext = decoded(headers.encode_start(outgoing, target)).ext
            assert ext is not None
            assert (ext["g"], ext["m"]) == (str(number), str(is_batch).lower())
