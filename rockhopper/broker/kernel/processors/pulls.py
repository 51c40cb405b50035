"""PULL_MESSAGE (11) and LITE_PULL_MESSAGE (361) in any serialization, and the answer to a pull.

Pulls with JSON headers normally take the fast path in hot_pass.py. Requests that it does not
recognize, and those that it refuses, arrive here.
"""

from collections.abc import Iterable
from dataclasses import dataclass

from rockhopper.broker.kernel.pull.puller import Pull, Puller, PullOutcome
from rockhopper.broker.server.remoting.dispatcher import (
    Request,
    Response,
    Row,
    refusal_response,
    serves,
)
from rockhopper.broker.server.remoting.permissions import (
    ExaminedRequest,
    RequiredPermission,
    on_topic,
)
from rockhopper.broker.store.reading.get_result import GetResult
from rockhopper.broker.users.access import Action, ResourceKind
from rockhopper.broker.users.errors import Refusal
from rockhopper.protocol.codes import RequestCode, ResponseCode
from rockhopper.protocol.names import TOOLS_CONSUMER_GROUP
from rockhopper.protocol.requests import PullMessageRequest
from rockhopper.protocol.sys_flags import PULL_FLAG_BROWSE, PULL_FLAG_SUBSCRIPTION

PULL_CODES = {
    PullOutcome.FOUND: ResponseCode.SUCCESS,
    PullOutcome.NOT_YET: ResponseCode.PULL_NOT_FOUND,
    PullOutcome.GO_ON: ResponseCode.PULL_RETRY_IMMEDIATELY,
    PullOutcome.MOVED: ResponseCode.PULL_OFFSET_MOVED,
}


class RequestReply:
    """Replies to a pull in any serialization."""

    __slots__ = ("_request",)

    def __init__(self, request: Request) -> None:
        self._request = request

    def answer(self, outcome: PullOutcome, result: GetResult) -> None:
        """See PullReply."""
        self._request.answer(pull_response(outcome, result))

    def refuse(self, error: Refusal) -> None:
        """See PullReply."""
        self._request.answer(refusal_response(error))

    def check_access(self) -> None:
        """See PullReply."""
        self._request.check_access()


_BROWSING = str(PULL_FLAG_BROWSE | PULL_FLAG_SUBSCRIPTION)


def _puller(request: ExaminedRequest) -> Iterable[str]:
    """Return the group that pulls; none for a browsing read, which commits nothing."""
    group, flags = request.ext.get("consumerGroup", ""), request.ext.get("sysFlag")
    return () if group == TOOLS_CONSUMER_GROUP and flags == _BROWSING else (group,)


PULLED = (on_topic(Action.SUB), RequiredPermission((Action.SUB,), ResourceKind.GROUP, _puller))


@dataclass(eq=False, repr=False)
class PullProcessor:
    """Serves pulls."""

    _puller: Puller

    def rows(self) -> dict[int, Row]:
        """Return the row of each request code; a new master delivers the same messages again."""
        return {
            RequestCode.PULL_MESSAGE: serves(
                self.process, *PULLED, promises_state=False, may_wait=True
            ),
            RequestCode.LITE_PULL_MESSAGE: serves(
                self.process, *PULLED, promises_state=False, may_wait=True
            ),
        }

    def process(self, request: Request) -> Response | None:
        """Serve one pull; return None while it waits for messages."""
        fields = request.fields(PullMessageRequest)

        pull = Pull(
            request.connection,
            request.code == RequestCode.LITE_PULL_MESSAGE,
            fields.consumer_group,
            fields.topic,
            fields.queue_id,
            fields.queue_offset,
            fields.max_msg_nums,
            fields.sys_flag,
            fields.commit_offset,
            fields.suspend_timeout_millis,
            fields.subscription,
            fields.expression_type,
            fields.sub_version,
            RequestReply(request),
        )
        served = self._puller.pull(pull)
        return None if served is None else pull_response(*served)


def pull_response(outcome: PullOutcome, result: GetResult) -> Response:
    """Return the answer to a pull, for any serialization."""
    return Response(
        PULL_CODES[outcome],
        result.status.value,
        {
            "suggestWhichBrokerId": str(result.suggested_broker_id),
            "nextBeginOffset": str(result.next_offset),
            "minOffset": str(result.min_offset),
            "maxOffset": str(result.max_offset),
        },
        result.body,
    )
