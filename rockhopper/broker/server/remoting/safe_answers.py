"""Responses that promise that something is stored: they are sent once it is safe.

Every processor that stores a message and acknowledges it ends with ``answer_when_safe``. The pass
over many sends (reply_batch.py) and coroutines (``SafePoint.wait``) wait for the same offset of
the store. ``tests/unit/broker/server/remoting/test_safe_answers.py`` checks the whole table of
request codes.
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
    """Return *response* if the log is safe up to *end_offset*; else None.

    Then *request* is answered once it is safe, or, if the disk has not confirmed it, with the code
    that *unconfirmed* returns for the error.
    """
    if end_offset <= store.safe_point.high_watermark:
        return response

    def release(error: StoreError | None) -> None:
        if error is not None:
            response.code = unconfirmed(error)
            response.remark = str(error)
        request.answer(response)

    store.safe_point.when(end_offset, release)
    return None
