"""PendingSends: counts the sends of a producer, so that closing it can wait for them."""

import asyncio


class PendingSends:
    """The sends that have begun and not ended; each is a `with` of this object."""

    def __init__(self) -> None:
        self._count = 0
        self._none: asyncio.Future[None] | None = None

    def __enter__(self) -> None:
        self._count += 1

    def __exit__(self, *_: object) -> None:
        self._count -= 1
        if not self._count and self._none is not None and not self._none.done():
            self._none.set_result(None)

    async def wait_until_none(self) -> None:
        """Return when every send has ended."""
        while self._count:
            self._none = asyncio.get_running_loop().create_future()
            await self._none
