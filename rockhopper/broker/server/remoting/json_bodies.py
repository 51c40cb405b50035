"""JSON in the bodies of requests and responses.

Short bodies are decoded at once. Long ones would block all other clients, so they are decoded in a
thread; very long ones are rejected.
"""

import asyncio
from collections.abc import Awaitable, Callable, Iterable
from typing import Any, TypeVar

from rockhopper.broker.server.loop.cooperative_work import run_in_thread
from rockhopper.broker.server.remoting.dispatcher import Request, Response
from rockhopper.broker.server.remoting.permissions import ExaminedRequest, Names
from rockhopper.broker.users.errors import Refusal
from rockhopper.protocol import fastjson
from rockhopper.protocol.bodies import Body

SHORT_BODY_SIZE_BYTES_MAX = 16 << 10
# A heartbeat with 10,000 subscriptions, a lock request with 20,000 queues.
CLIENT_BODY_SIZE_BYTES_MAX = 2 << 20
ADMIN_BODY_SIZE_BYTES_MAX = 2 << 20
REMARK_LENGTH_MAX = 500
LONG_BODIES = "long bodies"

AnyBody = TypeVar("AnyBody", bound=Body)


def check_size(body: bytes, most: int) -> None:
    """Raise Refusal for a body that is larger than any valid one."""
    if len(body) > most:
        raise Refusal(f"the body has {len(body)} bytes; {most} are allowed")


def names_in_body(kind: type[AnyBody], names: Callable[[AnyBody], Iterable[str]]) -> Names:
    """Return a function for names in a body of *kind*."""

    def find(request: ExaminedRequest) -> Iterable[str]:
        check_size(request.body, ADMIN_BODY_SIZE_BYTES_MAX)
        return set(names(kind.decode(request.body)))

    return find


def names_in_objects(list_name: str | None, field: str) -> Names:
    """Return a function for a field of the object in a body, or of those in a list of it."""

    def find(request: ExaminedRequest) -> Iterable[str]:
        check_size(request.body, ADMIN_BODY_SIZE_BYTES_MAX)
        document: Any = fastjson.loads(request.body)
        objects: Any = [document]
        if list_name is not None:
            objects = document.get(list_name) if isinstance(document, dict) else None
        if not isinstance(objects, list):
            return ("",)
        return {str(each.get(field, "")) if isinstance(each, dict) else "" for each in objects}

    return find


def with_body(
    request: Request,
    kind: type[AnyBody],
    serve: Callable[[Request, AnyBody], Response | Awaitable[Response]],
) -> Response | Awaitable[Response]:
    """Run *serve* with the request and its decoded body; later, if the body is long.

    Raises:
        Refusal: the body is too long.
        MalformedBodyError: it is not JSON, or not of this kind.
    """
    check_size(request.body, CLIENT_BODY_SIZE_BYTES_MAX)
    if len(request.body) <= SHORT_BODY_SIZE_BYTES_MAX:
        return serve(request, kind.decode(request.body))

    async def decode_and_serve() -> Response:
        async with _turn_of(request):
            served = serve(
                request, await run_in_thread("bodies", lambda: kind.decode(request.body))
            )
        return served if isinstance(served, Response) else await served

    return decode_and_serve()


def _turn_of(request: Request) -> asyncio.Lock:
    """Return the lock that serves the long bodies of one connection one by one, in order.

    Otherwise a hundred of them, decoded together, would be served in one iteration of the loop.
    """
    attributes = request.connection.attributes
    lock = attributes.get(LONG_BODIES)
    if not isinstance(lock, asyncio.Lock):
        lock = attributes[LONG_BODIES] = asyncio.Lock()
    return lock


async def read_object(body: bytes) -> dict[str, Any]:
    """Return the JSON object in an administrator's request.

    Raises:
        Refusal: it is too long, or not an object.
        MalformedBodyError: it is not JSON.
    """
    check_size(body, ADMIN_BODY_SIZE_BYTES_MAX)
    document = await run_in_thread("bodies", lambda: fastjson.loads(body))
    if not isinstance(document, dict):
        raise Refusal("the body is not a JSON object")
    return document


def refusal(error: Exception, prefix: str = "") -> Refusal:
    """Return a refusal with the text of *error*, cut because it may repeat the client's input."""
    return Refusal((prefix + str(error))[:REMARK_LENGTH_MAX])


def json_response(value: object, ext: dict[str, str] | None = None) -> Response:
    """Return a response with *value* in its body."""
    return Response(ext=ext, body=_encode(value))


async def long_json_response(
    make_value: Callable[[], object], ext: dict[str, str] | None = None
) -> Response:
    """Return the same for a value that is slow to make and encode: both run in a thread."""
    return Response(ext=ext, body=await run_in_thread("answers", lambda: _encode(make_value())))


def _encode(value: object) -> bytes:
    return fastjson.dumps(value).encode("utf-8", "replace")
