"""What a send request says, whichever names its header fields had."""

from typing import NamedTuple

from rockhopper.broker.remoting.dispatcher import Request
from rockhopper.protocol.codes import RequestCode
from rockhopper.protocol.properties import PROPERTY_WAIT, decode_properties
from rockhopper.protocol.requests import SendMessageRequest, SendMessageRequestV2


class Send(NamedTuple):
    """The header of a send request, whichever names its fields had."""

    group: str
    topic: str
    default_topic: str
    default_queue_nums: int
    queue_id: int
    sys_flag: int
    born_time_ms: int
    flag: int
    properties: str
    reconsume_times: int
    reconsume_times_max: int | None
    is_batch: bool
    unit_mode: bool = False


def waits_for_disk(properties: str) -> bool:
    """Whether a producer wants its answer only when the message is safe; nearly all do."""
    return "false" not in properties or decode_properties(properties).get(PROPERTY_WAIT) != "false"


def send_of(request: Request) -> Send:
    """The header of a send or of a reply. Raises FieldError."""
    wire: type[SendMessageRequest] | type[SendMessageRequestV2] = SendMessageRequestV2
    if request.code in (RequestCode.SEND_MESSAGE, RequestCode.SEND_REPLY_MESSAGE):
        wire = SendMessageRequest
    fields = request.fields(wire)
    return Send(
        fields.producer_group,
        fields.topic,
        fields.default_topic,
        fields.default_topic_queue_nums,
        fields.queue_id,
        fields.sys_flag,
        fields.born_timestamp,
        fields.flag,
        fields.properties or "",
        fields.reconsume_times or 0,
        fields.max_reconsume_times,
        fields.batch or request.code == RequestCode.SEND_BATCH_MESSAGE,
        fields.unit_mode,
    )
