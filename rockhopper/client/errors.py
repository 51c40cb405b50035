"""The exceptions of the client.

    ClientError                      every error: .code, .remark, .address (None if unknown)
    ├── RequestRefusedError          a broker or name server answered with an error code;
    │                                .is_retriable
    ├── BrokerUnreachableError       no connection, or it broke before the answer arrived
    ├── RequestTimeoutError          no answer in time; the client stays usable
    ├── MalformedAnswerError         the answer cannot be read
    ├── ReplyTimeoutError            a request message got no reply in time
    ├── EarlierSendFailedError       an earlier message of its sharding key failed: nothing sent
    ├── NotAllSentError              some messages of a send_many failed: see receipts.py
    ├── RouteNotFoundError           no broker serves the topic
    ├── MessageRejectedError         the message breaks a rule of the protocol: nothing was sent
    ├── BodyError                    a body is not what the deserializer expects
    ├── MessageNotFoundError         no message has this id
    └── ClientStateError             used before start, after close, in a forked child or in
                                     another event loop

If a send fails after several tries, it raises the last error, with notes about the earlier ones.
"""

from typing import Self, TypeVar

from rockhopper.protocol.codes import RequestCode, ResponseCode
from rockhopper.protocol.errors import restore_error

_Error = TypeVar("_Error", bound=Exception)

# Codes for which a producer tries another broker (RocketMQ's DefaultMQProducer, and GO_AWAY).
RETRIABLE_CODES = frozenset({1, 2, 14, 16, 17, 204, 205, 1500})

_REMEDIES: dict[int, str] = {
    ResponseCode.SYSTEM_BUSY: "the broker is overloaded: send more slowly, or try again later",
    ResponseCode.REQUEST_CODE_NOT_SUPPORTED: (
        "the server is too old, or the address of a broker and of a name server are mixed up"
    ),
    ResponseCode.SERVICE_NOT_AVAILABLE: "its log has the reason; often the disk is full",
    ResponseCode.NO_PERMISSION: "check the topic's permissions, the broker's access rules, and "
    "remoteAdmin for administrative commands from another host",
    ResponseCode.TOPIC_NOT_EXIST: "create it with `rockhopper topic create`",
    ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST: "create the group, or allow "
    "autoCreateSubscriptionGroup on the broker",
}

_UNSIGNED_REMEDY = (
    "the request was not signed: name a user by credentials=, --credentials FILE or "
    "$ROCKHOPPER_CREDENTIALS_FILE"
)

# Answers of a follower, or of a leader that may not store: the code, and a part of the remark.
_NOT_WRITABLE: dict[int, str] = {
    ResponseCode.SYSTEM_ERROR: "in-sync replicas",
    ResponseCode.SYSTEM_BUSY: "[REJECTREQUEST]",
    ResponseCode.SERVICE_NOT_AVAILABLE: "",
}

# The answer to an unknown queue id of a topic, before 5.0 and since.
_NO_QUEUE_CODES = frozenset({ResponseCode.SYSTEM_ERROR, ResponseCode.INVALID_PARAMETER})

# Texts of brokers that could not authenticate the user; RocketMQ 4 sends SYSTEM_ERROR.
UNPROVEN_CODES = frozenset({ResponseCode.NO_PERMISSION, ResponseCode.SYSTEM_ERROR})
_UNPROVEN = ("signature", "not signed", "accesskey", "username")

# Brokers explain these codes themselves; a guess behind the explanation would only blur it.
_SAID_BY_BROKERS = frozenset({ResponseCode.SERVICE_NOT_AVAILABLE})


def name_code(code: int) -> str:
    """Return RocketMQ's name of a response code, or the number."""
    try:
        return ResponseCode(code).name
    except ValueError:
        return str(code)


def name_request(code: int) -> str:
    """Return RocketMQ's name of a request code, or the number."""
    try:
        return RequestCode(code).name
    except ValueError:
        return f"request {code}"


class ClientError(Exception):
    """Any failure between this client and the brokers.

    `remedy` says in a few words what to do; the text already contains it, after `what`.
    """

    def __init__(
        self,
        message: str,
        *,
        code: int | None = None,
        remark: str | None = None,
        address: str | None = None,
        remedy: str | None = None,
    ) -> None:
        super().__init__(f"{message}; {remedy}" if remedy else message)
        self.what = message
        self.code = code
        self.remark = remark
        self.address = address
        self.remedy = remedy

    def __reduce__(self) -> tuple[object, ...]:
        return (restore_error, (type(self), self.args), self.__dict__)


_REPLY_CODES = (RequestCode.SEND_REPLY_MESSAGE, RequestCode.SEND_REPLY_MESSAGE_V2)
# "… fail, channel of <NAME> not found.", or "… to <NAME> fail."
_REQUESTER_GONE = "push reply message"


class RequestRefusedError(ClientError):
    """The server answered with an error code."""

    was_outdated = False
    """Whether the request was signed with credentials that have since changed here."""

    def __init__(
        self,
        request_code: int,
        code: int,
        remark: str | None,
        address: str,
        *,
        asked_as: str | None = None,
    ) -> None:
        """`asked_as` is the user and its source; "" is no user, None is unknown."""
        said = " ".join((remark or "").split())
        reason = said or name_code(code).replace("_", " ").lower()
        super().__init__(
            f"{reason} ({address} refused {name_request(request_code)}: "
            f"code {code}, {name_code(code)})",
            code=code,
            remark=remark,
            address=address,
            remedy=_remedy(code, said, asked_as),
        )
        self.request_code = request_code

    @property
    def is_retriable(self) -> bool:
        """Whether another broker might accept the same request."""
        return self.code in RETRIABLE_CODES

    @property
    def is_forbidden(self) -> bool:
        """Whether the user lacks permission."""
        return self.code == ResponseCode.NO_PERMISSION

    @property
    def is_unproven(self) -> bool:
        """Whether the broker could not authenticate the user: a wrong or outdated secret."""
        said = (self.remark or "").lower()
        return self.code in UNPROVEN_CODES and any(mark in said for mark in _UNPROVEN)

    @property
    def is_requester_gone(self) -> bool:
        """Whether a reply was refused because its requester has disconnected."""
        is_reply = self.request_code in _REPLY_CODES
        return is_reply and _REQUESTER_GONE in (self.remark or "")

    @property
    def is_route_outdated(self) -> bool:
        """Whether the topic or queue of the route no longer exists; nothing was stored."""
        return self.code == ResponseCode.TOPIC_NOT_EXIST or self.is_queue_unknown

    @property
    def is_queue_unknown(self) -> bool:
        """Whether the topic has fewer queues than the route said; nothing was stored."""
        said = self.remark or ""
        return self.code in _NO_QUEUE_CODES and "queueId[" in said and "illegal" in said

    @property
    def is_not_writable(self) -> bool:
        """Whether the broker stored nothing and accepts nothing now: another replica may lead."""
        hint = _NOT_WRITABLE.get(self.code or 0)
        return hint is not None and hint in (self.remark or "")


def _remedy(code: int, said: str, asked_as: str | None) -> str | None:
    if said and code in _SAID_BY_BROKERS:
        return None
    remedy = _REMEDIES.get(code)
    if said and code == ResponseCode.NO_PERMISSION:
        remedy = None
    if asked_as is None:
        return remedy
    if _is_unproven(code, said):
        return f"signed as {asked_as}: check both there" if asked_as else _UNSIGNED_REMEDY
    if code == ResponseCode.NO_PERMISSION and asked_as:
        return "; ".join(filter(None, (remedy, f"signed as {asked_as}")))
    return remedy


def _is_unproven(code: int, said: str) -> bool:
    return code in UNPROVEN_CODES and any(mark in said.lower() for mark in _UNPROVEN)


class BrokerUnreachableError(ClientError):
    """The connection failed, or broke before the answer arrived."""

    was_sent = False
    """Whether the request may have reached the server."""


class RequestTimeoutError(ClientError):
    """No answer arrived in time; the request may or may not have been carried out."""

    def __init__(self, request_code: int, address: str, timeout_s: float) -> None:
        super().__init__(
            f"{address} did not answer {name_request(request_code)} within {timeout_s:.3g} s",
            address=address,
        )
        self.timeout_s = timeout_s


class EarlierSendFailedError(ClientError):
    """Not sent: an earlier message with the same sharding key failed while this one waited."""


class ReplyTimeoutError(ClientError, TimeoutError):
    """The request message was stored, but no reply arrived in time."""


class MalformedAnswerError(ClientError):
    """The server sent invalid data, or a part of RocketMQ's protocol that is not supported."""


class RouteNotFoundError(ClientError):
    """No name server knows a broker that serves the topic.

    `topic` or `group` is the name that was not found, if there is one.
    """

    topic: str | None = None
    group: str | None = None

    def about(self, *, topic: str | None = None, group: str | None = None) -> Self:
        """Set the name that was not found, and return the error itself."""
        self.topic, self.group = topic, group
        return self


class MessageRejectedError(ClientError, ValueError):
    """The message is invalid; nothing was sent."""


class BodyError(ClientError, ValueError):
    """The deserializer cannot decode the body of a received message."""


class MessageNotFoundError(ClientError, LookupError):
    """No broker has a message with this id."""


class ClientStateError(ClientError, RuntimeError):
    """The client is not open, or belongs to another process or event loop."""


def is_away(error: Exception) -> bool:
    """Whether a server was unreachable or did not answer; the error's text needs no addition."""
    return isinstance(error, BrokerUnreachableError | RequestTimeoutError)


def may_have_moved(error: ClientError) -> bool:
    """Whether another broker may have become master after this failure."""
    if isinstance(error, RequestRefusedError):
        return error.is_not_writable
    return isinstance(error, BrokerUnreachableError)


def is_route_outdated(error: ClientError) -> bool:
    """Whether a broker reports that the route is outdated."""
    return isinstance(error, RequestRefusedError) and error.is_route_outdated


def copy_error(error: _Error) -> _Error:
    """Return a copy of an error for one waiter: a shared one would collect all tracebacks."""
    kind = type(error)
    copy = kind.__new__(kind, *error.args)
    copy.__dict__.update(error.__dict__)
    copy.__cause__ = error.__cause__
    if hasattr(error, "__notes__"):
        copy.__notes__ = list(error.__notes__)
    return copy
