"""Requests that the broker forwards from an administrator to a consumer: 307, 309, 223.

The broker forwards a request on the consumer's own connection and returns its answer. Some clients
never answer requests, so each forwarded request has a time limit.
"""

import asyncio
from dataclasses import dataclass
from typing import cast

from rockhopper.broker.kernel.members.consumer_groups import ConsumerGroups, Member
from rockhopper.broker.kernel.send.record_access import record_at
from rockhopper.broker.kernel.tables.subscription_groups import SubscriptionGroupTable
from rockhopper.broker.kernel.tables.topics import TopicTable
from rockhopper.broker.server.remoting.connection import connection_of
from rockhopper.broker.server.remoting.dispatcher import (
    Request,
    RequestError,
    Response,
    Row,
    administers,
)
from rockhopper.broker.server.remoting.json_bodies import json_response
from rockhopper.broker.server.remoting.permissions import CONSUME, on_group, on_topic_and_group
from rockhopper.broker.settings.broker_config import BrokerConfig
from rockhopper.broker.store.message_store import MessageStore
from rockhopper.broker.users.access import Action
from rockhopper.broker.users.errors import Refusal
from rockhopper.broker.users.peer import Peer, Questioned
from rockhopper.protocol.bodies import GetConsumerStatusBody
from rockhopper.protocol.codes import RequestCode, ResponseCode
from rockhopper.protocol.command import Command
from rockhopper.protocol.errors import FieldError, ProtocolError
from rockhopper.protocol.message_ids import decode_offset_message_id
from rockhopper.protocol.requests.groups import (
    ConsumeMessageDirectlyRequest,
    GetConsumerRunningInfoRequest,
    GetConsumerStatusRequest,
)

ANSWER_TIMEOUT_S = 10.0
STATUS_TIMEOUT_S = 5.0
# V3_1_8_SNAPSHOT: older clients know neither request.
VERSION_WITH_RUNNING_INFO = 62


@dataclass(eq=False, repr=False)
class ClientCallProcessors:
    """Serves requests by forwarding them to consumers."""

    _config: BrokerConfig
    _store: MessageStore
    _topics: TopicTable
    _groups: SubscriptionGroupTable
    _consumers: ConsumerGroups

    def rows(self) -> dict[int, Row]:
        """Return the row of each request code."""
        return {
            RequestCode.GET_CONSUMER_RUNNING_INFO: administers(
                self.running_info, on_group(Action.GET), promises_state=False
            ),
            RequestCode.CONSUME_MESSAGE_DIRECTLY: administers(self.consume_directly, *CONSUME),
            RequestCode.INVOKE_BROKER_TO_GET_CONSUMER_STATUS: administers(
                self.consumer_status,
                *on_topic_and_group(Action.GET, group_field="group"),
                promises_state=False,
            ),
        }

    async def running_info(self, request: Request) -> Response:
        """307: return a consumer's status."""
        fields = request.fields(GetConsumerRunningInfoRequest)
        member = self._member(fields.consumer_group, fields.client_id)
        return await self._relay(request, member, dict(request.ext), b"")

    async def consume_directly(self, request: Request) -> Response:
        """309: make one consumer consume one message now."""
        fields = request.fields(ConsumeMessageDirectlyRequest)
        member = self._member(fields.consumer_group, fields.client_id or "")
        ext = dict(request.ext)
        ext["brokerName"] = self._config.broker_name
        topic = self._topics.get(fields.topic or "")
        ext["topicSysFlag"] = str(topic.sys_flag if topic is not None else 0)
        group = self._groups.get(fields.consumer_group)
        ext["groupSysFlag"] = str(group.group_sys_flag if group is not None else 0)
        body = self._record(request, fields.msg_id) if fields.msg_id else b""
        return await self._relay(request, member, ext, body)

    def _member(self, group: str, client_id: str) -> Member:
        member = self._consumers.find(group, client_id)
        if member is None:
            raise Refusal(f"The Consumer <{group}> <{client_id}> not online")
        if member.version < VERSION_WITH_RUNNING_INFO:
            raise Refusal(
                f"The Consumer <{client_id}> Version <{member.version}> too low to finish, please "
                "upgrade it to V3_1_8_SNAPSHOT"
            )
        return member

    def _record(self, request: Request, message_id: str) -> bytes:
        try:
            _, _, offset = decode_offset_message_id(message_id)
        except FieldError as error:
            raise Refusal(str(error)) from None
        of_topics = (request.ext.get("topic", ""),) if request.principal.user else None
        found = record_at(self._store, offset, of_topics)
        if found is None:
            raise Refusal(f"can not find the message by the id {message_id}")
        return found[0]

    async def _relay(
        self, request: Request, member: Member, ext: dict[str, str], body: bytes
    ) -> Response:
        ext.pop("rh", None)
        shown = f"<{ext.get('consumerGroup', '')}> <{member.client_id}>"
        try:
            answer = await _ask(member.connection, request.code, ext, body, ANSWER_TIMEOUT_S)
        except TimeoutError:
            raise RequestError(
                ResponseCode.CONSUME_MSG_TIMEOUT,
                f"consumer {shown} Timeout: {ANSWER_TIMEOUT_S * 1000:.0f}ms",
            ) from None
        except ConnectionResetError as error:
            raise Refusal(f"invoke consumer {shown} fail: {error}") from None
        return Response(answer.code, answer.remark, answer.ext, answer.body)

    async def consumer_status(self, request: Request) -> Response:
        """223: return the offsets in a topic that a group's clients report themselves (221)."""
        fields = request.fields(GetConsumerStatusRequest)
        online = self._consumers.get(fields.group)
        members = list(online.members.values()) if online is not None else []
        if not members:
            raise Refusal(f"No Any Consumer online in the consumer group: [{fields.group}]")
        wanted = [m for m in members if not fields.client_addr or m.client_id == fields.client_addr]
        ext = {"topic": fields.topic, "group": fields.group}
        answers = await asyncio.gather(*(self._status(member, ext) for member in wanted))
        body = GetConsumerStatusBody()
        for member, answer in zip(wanted, answers, strict=True):
            if answer is not None and answer.code == ResponseCode.SUCCESS and answer.body:
                try:
                    told = GetConsumerStatusBody.decode(answer.body)
                except ProtocolError:
                    continue
                body.consumer_table[member.client_id] = told.message_queue_table
        return json_response(body)

    async def _status(self, member: Member, ext: dict[str, str]) -> Command | None:
        try:
            code = RequestCode.GET_CONSUMER_STATUS_FROM_CLIENT
            return await _ask(member.connection, code, ext, b"", STATUS_TIMEOUT_S)
        except (TimeoutError, ConnectionResetError):
            return None


async def _ask(
    peer: Peer, code: int, ext: dict[str, str], body: bytes, timeout_s: float
) -> Command:
    """Send a request to a consumer and return its answer.

    Raises TimeoutError, ConnectionResetError.
    """
    connection = connection_of(peer)
    if connection is not None:
        return await connection.call(code, ext, body, timeout_s)
    questioned = cast(Questioned, peer)
    async with asyncio.timeout(timeout_s):
        if code == RequestCode.GET_CONSUMER_RUNNING_INFO:
            with_stacks = ext.get("jstackEnable", "").lower() == "true"
            answer = await questioned.running_info(with_stacks=with_stacks)
        elif code == RequestCode.CONSUME_MESSAGE_DIRECTLY:
            answer = await questioned.consume_directly(body)
        else:
            # A gRPC client manages no queues that it could report.
            return Command(
                code=ResponseCode.REQUEST_CODE_NOT_SUPPORTED,
                remark=f"a client of RocketMQ 5 does not support request code {code}",
            )
    return Command(code=ResponseCode.SUCCESS, body=answer)
