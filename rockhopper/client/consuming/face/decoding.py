"""Decodes bodies before delivery, and handles the bodies that cannot be decoded."""

import logging
from collections.abc import Callable

from rockhopper.client.consuming.process_queue import ProcessQueue
from rockhopper.client.errors import ClientError
from rockhopper.client.received import ReceivedMessage
from rockhopper.client.serializers import BAD_BODIES, BadBody, Serializer
from rockhopper.protocol.errors import ProtocolError

log = logging.getLogger(__name__)

Outcome = Callable[[ProcessQueue, ReceivedMessage], object]

_SAID = {
    "retry": "it will be redelivered",
    "dead-letter": "it goes to the dead letters",
    "skip": "it is skipped",
}


class Decoding:
    """Decodes the messages of one consumer; `outcome` handles a message with a bad body."""

    def __init__(self, deserializer: Serializer, bad_body: BadBody, outcome: Outcome) -> None:
        self._deserializer = deserializer
        self._bad_body = bad_body
        self._outcome = outcome

    def accepts(self, held: ProcessQueue, message: ReceivedMessage) -> bool:
        """Decode a message and return whether it can be delivered."""
        message.deserializer = self._deserializer
        try:
            _ = message.value
        except (SystemExit, KeyboardInterrupt):
            held.put_back(message)
            raise
        except (ClientError, ProtocolError) as error:
            log.warning("%s; %s", error, _SAID[self._bad_body])
            self._outcome(held, message)
            return False
        except BaseException as error:  # a panic in a compiled library, a leaked cancellation
            log.warning(
                "the deserializer failed on %r; %s",
                message,
                _SAID[self._bad_body],
                exc_info=error,
            )
            self._outcome(held, message)
            return False
        return True


def check_bad_body(bad_body: str) -> None:
    """Raise ValueError unless `bad_body` is a known policy for bodies that cannot be decoded."""
    if bad_body not in BAD_BODIES:
        raise ValueError(f"bad_body is {bad_body!r}: use one of {', '.join(BAD_BODIES)}")
