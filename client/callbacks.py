"""What applications hand over to be called: refused at once where it could only fail later."""

import inspect


def check_coroutine_function(kind: str, function: object) -> None:
    """Raise TypeError unless `function` is written with `async def`; `kind` names it."""
    call = type(function).__call__  # an object may be one too; its class is none
    if not (inspect.iscoroutinefunction(function) or inspect.iscoroutinefunction(call)):
        raise TypeError(
            f"the {kind} {function!r} is not a coroutine function: write it with `async def`, and "
            "call what blocks with asyncio.to_thread"
        )
