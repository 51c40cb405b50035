"""Answers that wait until the change they confirm is in a table's file.

The end of a save answers all requests that wait by then. So a thousand changes cost a few saves,
and no task or thread each.
"""

import asyncio

from rockhopper.broker.kernel.tables.json_table import SAVE_ERRORS, JsonTable
from rockhopper.broker.server.loop.cooperative_work import next_slice
from rockhopper.broker.server.remoting.dispatcher import Request, Response, error_response
from rockhopper.broker.users.errors import TooManyWait
from rockhopper.protocol.codes import ResponseCode
from rockhopper.tasks import run_in_background

WAITING_MAX = 10_000
ANSWERS_PER_TURN = 200


class SavedAnswers:
    """The requests that wait for one table to be saved. Belongs to the event loop."""

    def __init__(self, table: JsonTable) -> None:
        self._table = table
        self._waiting: list[Request] = []
        self._task: asyncio.Task[None] | None = None

    def check_room(self) -> None:
        """Raise TooManyWait if too many requests already wait."""
        if len(self._waiting) >= WAITING_MAX:
            raise TooManyWait(
                f"[OVERLOAD]{WAITING_MAX} changes are waiting for the disk already: try again later"
            )

    def answer(self, request: Request) -> Response | None:
        """Return the answer to a request that has changed the table; None if it has to wait."""
        table = self._table
        if (table.is_saved and not table.awaits_replicas) or not table.is_saving_on:
            return Response()
        self._waiting.append(request)
        if self._task is None:
            self._task = run_in_background(
                self._answer_saved(),
                "answers that wait for the disk",
                on_failure=self._note_failure,
            )
        return None

    def _note_failure(self, _error: BaseException) -> None:
        # The next change starts another task, which answers the waiting requests.
        self._task = None

    async def _answer_saved(self) -> None:
        while self._waiting:
            waiting, self._waiting = self._waiting, []
            response = await self._answer_saved_value()
            for number, request in enumerate(waiting, 1):
                request.answer(response)
                if number % ANSWERS_PER_TURN == 0:
                    await next_slice()
        self._task = None

    async def _answer_saved_value(self) -> Response:
        try:
            await self._table.saved()
        except SAVE_ERRORS as error:
            return error_response(error) or Response(
                ResponseCode.SYSTEM_ERROR,
                "the change is in effect, but not saved yet; it is lost if the process stops "
                f"before: {error}",
            )
        return Response()
