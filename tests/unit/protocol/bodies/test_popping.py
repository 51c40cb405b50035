"""Bodies of pop consumption, by the names that RocketMQ's clients write."""

import pytest

from rockhopper.protocol.bodies.popping import (
    BatchAck,
    BatchAckMessageRequestBody,
    MessageQueueAssignment,
    QueryAssignmentRequestBody,
    QueryAssignmentResponseBody,
    SetMessageRequestModeRequestBody,
)
from rockhopper.protocol.errors import MalformedBodyError
from rockhopper.protocol.fastjson import MessageQueueKey


def test_an_acknowledgement_has_names_of_one_letter() -> None:
    body = BatchAckMessageRequestBody.decode(
        '{"brokerName":"b","acks":[{"c":"g","t":"T","r":"1","so":40,"q":2,"rq":3,"pt":5,"it":6,'
        '"b":"BQ=="}]}'
    )
    assert body == BatchAckMessageRequestBody(
        "b", [BatchAck("g", "T", "1", 40, 2, 3, 5, 6, "BQ==")]
    )


def test_what_an_assignment_leaves_out_is_the_usual() -> None:
    body = QueryAssignmentRequestBody.decode('{"topic":"T","consumerGroup":"g","clientId":"c"}')
    assert (body.strategy_name, body.message_model) == ("AVG", "CLUSTERING")


def test_assigned_queues_are_written_with_their_mode() -> None:
    queue = MessageQueueKey("T", "b", 1)
    answer = QueryAssignmentResponseBody([MessageQueueAssignment(queue, "POP")])
    assert QueryAssignmentResponseBody.decode(answer.encode()) == answer
    assert answer.encode() == (
        b'{"messageQueueAssignments":[{"messageQueue":{"brokerName":"b","queueId":1,"topic":"T"},'
        b'"mode":"POP"}]}'
    )


def test_a_mode_reads_back() -> None:
    mode = SetMessageRequestModeRequestBody("g", "POP", 8, "T")
    assert SetMessageRequestModeRequestBody.decode(mode.encode()) == mode


@pytest.mark.parametrize("text", ['{"acks":7}', '{"acks":[7]}', '{"acks":[{"so":"x"}]}'])
def test_acknowledgements_of_another_shape_are_refused(text: str) -> None:
    with pytest.raises(MalformedBodyError):
        BatchAckMessageRequestBody.decode(text)
