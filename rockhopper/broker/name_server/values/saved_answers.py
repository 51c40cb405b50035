"""Answers that wait until a table's file holds what they speak of.

All that wait when a save ends are answered by it, so that a thousand changes cost a few saves, and
neither a task nor a thread each.
"""

import asyncio

from rockhopper.broker.kernel.tables.json_table import SAVE_ERRORS, JsonTable
from rockhopper.broker.server.loop.slices import next_slice
from rockhopper.broker.server.remoting.dispatcher import Request, Response, error_response
from rockhopper.broker.users.errors import TooManyWait
from rockhopper.protocol.codes import ResponseCode
from rockhopper.tasks import run_in_background

WAITING_MAX = 10_000
ANSWERS_PER_TURN = 200


class SavedAnswers:
    """The requests that wait for one table. Belongs to the event loop."""

    def __init__(self, table: JsonTable) -> None:
        self._table = table
        self._waiting: list[Request] = []
        self._task: asyncio.Task[None] | None = None

    def check_room(self) -> None:
        """Refuse a change whose answer would have to wait behind too many. Raises TooManyWait."""
        if len(self._waiting) >= WAITING_MAX:
            raise TooManyWait(
                f"[OVERLOAD]{WAITING_MAX} changes wait for the disk already: try again later"
            )

    def answer(self, request: Request) -> Response | None:
        """The answer to a request that has changed the table, or None if it has to wait."""
        table = self._table
        if (table.is_saved and table.confirmed is None) or not table.is_saving_on:
            return Response()
        self._waiting.append(request)
        if self._task is None:
            self._task = run_in_background(
                self._answer_saved(), "answers that wait for the disk", on_failure=self._failed
            )
        return None

    def _failed(self, _error: BaseException) -> None:
        self._task = None  # the next change begins another, which answers those that wait

    async def _answer_saved(self) -> None:
        while self._waiting:
            waiting, self._waiting = self._waiting, []
            response = await self._saved()
            for number, request in enumerate(waiting, 1):
                request.answer(response)
                if number % ANSWERS_PER_TURN == 0:
                    await next_slice()
        self._task = None

    async def _saved(self) -> Response:
        try:
            await self._table.saved()
        except SAVE_ERRORS as error:
            return error_response(error) or Response(
                ResponseCode.SYSTEM_ERROR,
                f"what was changed holds until the process stops, and is saved as soon as it can "
                f"be: {error}",
            )
        return Response()
