"""Headers of send requests: the part shared by all messages of a queue is encoded once.

A header is JSON up to the end of the ext fields, as Connection.request_json expects it.
"""

from rockhopper.client.queues import MessageQueue
from rockhopper.client.sending.outgoing import OutgoingMessage
from rockhopper.protocol.codes import RequestCode
from rockhopper.protocol.headers.header_json import begin_json_header, json_text
from rockhopper.protocol.names import AUTO_CREATE_TOPIC

_SEND = int(RequestCode.SEND_MESSAGE_V2)
_BATCH = int(RequestCode.SEND_BATCH_MESSAGE)
_TEMPLATES_MAX = 10_000
_OWN_FIELDS = b',"f":"%d","g":"%d","h":"%d","i":%b},'


class SendHeaders:
    """Builds the headers of one producer group."""

    def __init__(self, group: str) -> None:
        self._group = group
        self._templates: dict[tuple[MessageQueue, bool], bytes] = {}

    def encode_start(self, outgoing: OutgoingMessage, target: MessageQueue) -> bytes:
        """Return the header's beginning for a message or batch to `target`."""
        template = self._templates.get((target, outgoing.is_batch))
        if template is None:
            template = self._template(outgoing, target)
        return template % (
            outgoing.sys_flag,
            outgoing.born_time_ms,
            outgoing.flag,
            json_text(outgoing.properties),
        )

    def _template(self, outgoing: OutgoingMessage, target: MessageQueue) -> bytes:
        fields = send_fields(self._group, outgoing, target)
        for name in "fghi":
            del fields[name]
        start = begin_json_header(send_code(outgoing), fields).removesuffix(b"},")
        template = start.replace(b"%", b"%%") + _OWN_FIELDS
        if len(self._templates) >= _TEMPLATES_MAX:
            self._templates.clear()
        self._templates[target, outgoing.is_batch] = template
        return template


def send_code(outgoing: OutgoingMessage) -> int:
    """Return the request code for sending a message or a batch."""
    return _BATCH if outgoing.is_batch else _SEND


def send_fields(group: str, outgoing: OutgoingMessage, target: MessageQueue) -> dict[str, str]:
    """Return the fields of SendMessageRequestV2 (protocol/requests) under their wire names."""
    return {
        "a": group,
        "b": outgoing.topic,
        "c": AUTO_CREATE_TOPIC,
        "d": "4",
        "e": str(target.queue_id),
        "f": str(outgoing.sys_flag),
        "g": str(outgoing.born_time_ms),
        "h": str(outgoing.flag),
        "i": outgoing.properties,
        "j": "0",
        "k": "false",
        "m": "true" if outgoing.is_batch else "false",
        "n": target.broker_name,
    }
