"""Explains why a topic or group was not found, with the help of the name server and the brokers.

Suggested names come from lists that the client may read. If these are refused, or do not arrive in
time, the error is unchanged.
"""

import asyncio
import difflib
from collections.abc import Sequence

from rockhopper.client.admin.admin import Admin
from rockhopper.client.errors import ClientError, RouteNotFoundError
from rockhopper.client.network.absent import suggest_any_broker, suggest_starting

_TIMEOUT_S = 3.0
_NAMES_MAX = 20_000
_SUGGESTIONS_MAX = 3
_LIKENESS_MIN = 0.7


async def explain(error: RouteNotFoundError, nameserver: str | None) -> RouteNotFoundError:
    """Return the error with a better remedy, if there is one."""
    if error.topic is None and error.group is None:
        return error
    try:
        async with (
            asyncio.timeout(_TIMEOUT_S),
            Admin(nameserver, request_timeout_s=_TIMEOUT_S) as admin,
        ):
            remedy = await _find_remedy(error, admin)
    except (ClientError, TimeoutError):
        return error
    better = RouteNotFoundError(error.what, address=error.address, remedy=remedy)
    for note in getattr(error, "__notes__", ()):
        better.add_note(note)
    return better


async def _find_remedy(error: RouteNotFoundError, admin: Admin) -> str | None:
    if not await admin.brokers():
        return suggest_any_broker(await admin.away())
    asked = error.topic or error.group or ""
    names = await _list_names(error, admin)
    near = [] if asked in names else find_nearest(asked, names)
    if near:
        return f"did you mean {' or '.join(map(repr, near))}?"
    if error.topic is None or error.remedy is not None:
        return error.remedy
    away = await admin.away()
    return suggest_starting(away) if away else None


async def _list_names(error: RouteNotFoundError, admin: Admin) -> Sequence[str]:
    try:
        if error.topic is not None:
            return await admin.topics()
        return await admin.groups.names()
    except ClientError:
        return ()


def find_nearest(name: str, names: Sequence[str]) -> list[str]:
    """Return the `names` that `name` may be a typo of, the most similar first."""
    spelled = {each.lower(): each for each in names[:_NAMES_MAX]}
    found = difflib.get_close_matches(name.lower(), spelled, _SUGGESTIONS_MAX, _LIKENESS_MIN)
    return [spelled[each] for each in found]
