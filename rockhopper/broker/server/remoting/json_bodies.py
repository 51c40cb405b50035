"""JSON in the bodies of requests and responses.

Short bodies are decoded at once. Long ones, which would hold up all other clients, are decoded in
a thread, and very long ones are refused.
"""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any, TypeVar

from rockhopper.broker.server.loop.slices import in_thread
from rockhopper.broker.server.remoting.dispatcher import Request, Response
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
    """Refuse bodies that nobody needs. Raises Refusal."""
    if len(body) > most:
        raise Refusal(f"the body has {len(body)} bytes; {most} are allowed")


def with_body(
    request: Request,
    kind: type[AnyBody],
    serve: Callable[[Request, AnyBody], Response | Awaitable[Response]],
) -> Response | Awaitable[Response]:
    """What *serve* makes of the request and its decoded body; later, if the body is long.

    Raises:
        Refusal: the body is too long.
        MalformedBodyError: it is not JSON, or not of this kind.
    """
    check_size(request.body, CLIENT_BODY_SIZE_BYTES_MAX)
    if len(request.body) <= SHORT_BODY_SIZE_BYTES_MAX:
        return serve(request, kind.decode(request.body))

    async def decode_and_serve() -> Response:
        async with _turn_of(request):
            served = serve(request, await in_thread("bodies", lambda: kind.decode(request.body)))
        return served if isinstance(served, Response) else await served

    return decode_and_serve()


def _turn_of(request: Request) -> asyncio.Lock:
    """What lets the long bodies of one connection be served one at a time, in their order.

    A hundred of them that are decoded together would be served in one turn of the loop.
    """
    attributes = request.connection.attributes
    lock = attributes.get(LONG_BODIES)
    if not isinstance(lock, asyncio.Lock):
        lock = attributes[LONG_BODIES] = asyncio.Lock()
    return lock


async def read_object(body: bytes) -> dict[str, Any]:
    """The JSON object in an administrator's request.

    Raises:
        Refusal: it is too long, or something else than an object.
        MalformedBodyError: it is not JSON.
    """
    check_size(body, ADMIN_BODY_SIZE_BYTES_MAX)
    document = await in_thread("bodies", lambda: fastjson.loads(body))
    if not isinstance(document, dict):
        raise Refusal("the body is no JSON object")
    return document


def refusal(error: Exception, prefix: str = "") -> Refusal:
    """A refusal in the words of *error*, which may repeat what the client sent: not all of it."""
    return Refusal((prefix + str(error))[:REMARK_LENGTH_MAX])


def json_response(value: object, ext: dict[str, str] | None = None) -> Response:
    """A response with *value* in its body."""
    return Response(ext=ext, body=_encode(value))


async def long_json_response(
    make_value: Callable[[], object], ext: dict[str, str] | None = None
) -> Response:
    """The same for a value that takes long to make and write: both happen in a thread."""
    return Response(ext=ext, body=await in_thread("answers", lambda: _encode(make_value())))


def _encode(value: object) -> bytes:
    return fastjson.dumps(value).encode("utf-8", "replace")
