"""Answers that promise that something is stored: they leave when it is safe, and not before.

Every processor that stores a message and says so ends with ``answer_when_safe``; the pass over many
sends (turn.py) and whoever can wait (``MessageStore.safe``) ask the store the same question.
``tests/unit/broker/kernel/processors/test_safe_answers.py`` goes through the table of request
codes.
"""

from collections.abc import Callable

from rockhopper.broker.server.remoting.dispatcher import Request, Response, unconfirmed_code
from rockhopper.broker.store.files.errors import StoreError
from rockhopper.broker.store.message_store import MessageStore


def answer_when_safe(
    store: MessageStore,
    request: Request,
    response: Response,
    end_offset: int,
    unconfirmed: Callable[[StoreError], int] = unconfirmed_code,
) -> Response | None:
    """*response*, if what stands in front of *end_offset* in the log is safe; else None.

    *request* is then answered when it is, or with the code that *unconfirmed* gives for why the
    disk has not confirmed it.
    """
    if end_offset <= store.safe_offset:
        return response

    def release(error: StoreError | None) -> None:
        if error is not None:
            response.code = unconfirmed(error)
            response.remark = str(error)
        request.answer(response)

    store.when_safe(end_offset, release)
    return None
