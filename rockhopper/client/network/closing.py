"""ClosedAtEnd: closes a client at the end of its ``async with`` block."""

from types import TracebackType


class ClosedAtEnd:
    """An object that ``async with`` closes, also after an exception."""

    async def close(self) -> None:
        """Close it."""
        raise NotImplementedError

    async def __aexit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        await self.close()
