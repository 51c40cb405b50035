"""JSON in the bodies of requests and responses.

Short bodies are decoded at once.  Long ones, which would hold up all other clients, are decoded in
a thread, and very long ones are refused.
"""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any, TypeVar

from broker.dispatcher import Request, RequestError, Response
from protocol import fastjson
from protocol.bodies import Body
from protocol.codes import ResponseCode

SHORT_BODY_SIZE_BYTES_MAX = 16 << 10
BODY_SIZE_BYTES_MAX = 2 << 20
REMARK_LENGTH_MAX = 500

AnyBody = TypeVar("AnyBody", bound=Body)


def check_size(body: bytes) -> None:
    """Refuse bodies that nobody needs.  Raises RequestError."""
    if len(body) > BODY_SIZE_BYTES_MAX:
        raise RequestError(
            ResponseCode.SYSTEM_ERROR,
            f"the body has {len(body)} bytes; {BODY_SIZE_BYTES_MAX} are allowed",
        )


def with_body(
    request: Request, kind: type[AnyBody], serve: Callable[[Request, AnyBody], Response]
) -> Response | Awaitable[Response]:
    """What *serve* makes of the request and its decoded body; later, if the body is long.

    Raises:
        RequestError: the body is too long.
        MalformedBodyError: it is not JSON, or not of this kind.
    """
    check_size(request.body)
    if len(request.body) <= SHORT_BODY_SIZE_BYTES_MAX:
        return serve(request, kind.decode(request.body))

    async def decode_and_serve() -> Response:
        return serve(request, await asyncio.to_thread(kind.decode, request.body))

    return decode_and_serve()


async def read_object(body: bytes) -> dict[str, Any]:
    """The JSON object in a request's body.

    Raises:
        RequestError: it is too long, or something else than an object.
        MalformedBodyError: it is not JSON.
    """
    check_size(body)
    document = await asyncio.to_thread(fastjson.loads, body)
    if not isinstance(document, dict):
        raise RequestError(ResponseCode.SYSTEM_ERROR, "the body is no JSON object")
    return document


def refusal(error: Exception, prefix: str = "") -> RequestError:
    """A refusal in the words of *error*, which may repeat what the client sent: not all of it."""
    return RequestError(ResponseCode.SYSTEM_ERROR, (prefix + str(error))[:REMARK_LENGTH_MAX])


def json_response(value: object, ext: dict[str, str] | None = None) -> Response:
    """A response with *value* in its body."""
    return Response(ext=ext, body=fastjson.dumps(value).encode("utf-8", "replace"))
