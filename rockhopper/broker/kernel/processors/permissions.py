"""The permissions for requests that name topics and groups in bodies or unusual fields."""

from collections.abc import Callable, Iterable
from typing import Any, TypeVar

from rockhopper.broker.server.remoting.json_bodies import ADMIN_BODY_SIZE_BYTES_MAX, check_size
from rockhopper.broker.server.remoting.permissions import (
    ExaminedRequest,
    Names,
    RequiredPermission,
    everything,
    in_field,
    in_optional_field,
    on_group,
    on_topic,
)
from rockhopper.broker.users.access import Action, ResourceKind
from rockhopper.protocol import fastjson
from rockhopper.protocol.bodies import (
    Body,
    CheckClientRequestBody,
    ConsumerData,
    LockBatchRequestBody,
)
from rockhopper.protocol.bodies.log_history import decode_history_question
from rockhopper.protocol.bodies.topic_ids import decode_topics
from rockhopper.protocol.names import TOOLS_CONSUMER_GROUP
from rockhopper.protocol.sys_flags import PULL_FLAG_BROWSE, PULL_FLAG_SUBSCRIPTION

AnyBody = TypeVar("AnyBody", bound=Body)

_BROWSING = str(PULL_FLAG_BROWSE | PULL_FLAG_SUBSCRIPTION)


def names_in_body(kind: type[AnyBody], names: Callable[[AnyBody], Iterable[str]]) -> Names:
    def find(request: ExaminedRequest) -> Iterable[str]:
        check_size(request.body, ADMIN_BODY_SIZE_BYTES_MAX)
        return set(names(kind.decode(request.body)))

    return find


def names_in_objects(list_name: str | None, field: str) -> Names:
    """The values of a field in the JSON object of a body, or in those of a list of it."""

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


def _in_list(field: str) -> Names:
    """The names in a field, with commas between them, if it is there."""
    return lambda request: filter(None, request.ext.get(field, "").split(","))


def _not_at_the_gate(_request: ExaminedRequest) -> Iterable[str]:
    return ()


def consuming(consumer: ConsumerData) -> tuple[RequiredPermission, RequiredPermission]:
    """The permissions for one consumer group in a heartbeat."""
    topics = [each.topic for each in consumer.subscription_data_set]
    return on_topics_and_groups(
        Action.SUB, lambda _request: topics, lambda _request: (consumer.group_name,)
    )


def _checked_topics(body: CheckClientRequestBody) -> Iterable[str]:
    return () if body.subscription_data is None else (body.subscription_data.topic,)


def _puller(request: ExaminedRequest) -> Iterable[str]:
    """The group that pulls; none for a browsing read, which commits nothing."""
    group, flags = request.ext.get("consumerGroup", ""), request.ext.get("sysFlag")
    return () if group == TOOLS_CONSUMER_GROUP and flags == _BROWSING else (group,)


def on_topics_and_groups(
    action: Action, topics: Names, groups: Names
) -> tuple[RequiredPermission, RequiredPermission]:
    return RequiredPermission((action,), ResourceKind.TOPIC, topics), RequiredPermission(
        (action,), ResourceKind.GROUP, groups
    )


def on_topic_and_group(
    *actions: Action, group_field: str
) -> tuple[RequiredPermission, RequiredPermission]:
    return on_topic(*actions), on_group(*actions, field=group_field)


_OPTIONAL_TOPIC = in_optional_field("topic")


def _measured_topics(request: ExaminedRequest) -> Iterable[str]:
    listed = request.ext.get("topicList", "").split(";")
    return filter(None, (request.ext.get("topic"), *listed))


ALL_TOPICS = RequiredPermission((Action.LIST,), ResourceKind.TOPIC, everything)
ALL_GROUPS = RequiredPermission((Action.LIST,), ResourceKind.GROUP, everything)
SENT = on_topic(Action.PUB, field="b")
HEARTBEAT = on_topics_and_groups(Action.SUB, _not_at_the_gate, _not_at_the_gate)
"""``consuming`` is asked for each group, so that one of them cannot lock the others out."""

SENT_BACK = (
    on_group(Action.SUB, field="group"),
    on_topic(Action.SUB, field="originTopic"),
)
"""The message that comes back is copied for the group, so its topic must be readable, too."""

UNREGISTER = RequiredPermission(
    (Action.SUB,), ResourceKind.GROUP, in_optional_field("consumerGroup")
)
CHECKED = on_topics_and_groups(
    Action.SUB,
    names_in_body(CheckClientRequestBody, _checked_topics),
    names_in_body(CheckClientRequestBody, lambda body: [body.group]),
)
LOCKED = on_topics_and_groups(
    Action.SUB,
    names_in_body(LockBatchRequestBody, lambda body: [queue.topic for queue in body.mq_set]),
    names_in_body(LockBatchRequestBody, lambda body: [body.consumer_group]),
)
COMMITTED = on_topic_and_group(Action.SUB, Action.UPDATE, group_field="consumerGroup")
QUEUE_SEEN = on_topics_and_groups(Action.GET, in_field("topic"), in_optional_field("consumerGroup"))
QUERY_OFFSET = on_topic_and_group(Action.SUB, Action.GET, group_field="consumerGroup")
GROUP_INFO = on_topic_and_group(Action.GET, group_field="group")
CONSUME_STATS = on_topics_and_groups(Action.GET, _measured_topics, in_field("consumerGroup"))
RESET_OFFSET = on_topic_and_group(Action.UPDATE, group_field="group")
CORRECTED = (
    *on_topics_and_groups(Action.GET, in_field("topic"), in_optional_field("compareGroup")),
    RequiredPermission((Action.GET,), ResourceKind.GROUP, _in_list("filterGroups")),
)
CLONED = (
    RequiredPermission((Action.UPDATE,), ResourceKind.TOPIC, _OPTIONAL_TOPIC),
    on_group(Action.GET, field="srcGroup"),
    on_group(Action.UPDATE, field="destGroup"),
)
PULLED = (on_topic(Action.SUB), RequiredPermission((Action.SUB,), ResourceKind.GROUP, _puller))
IDENTIFIED = RequiredPermission(
    (Action.SUB, Action.GET), ResourceKind.TOPIC, lambda request: decode_topics(request.body)
)
"""Requests of consumers such as the ends of queues: the right to pull covers them."""
COMPARED = RequiredPermission(
    (Action.SUB,),
    ResourceKind.TOPIC,
    lambda request: {topic for topic, _ in decode_history_question(request.body).queues},
)
TOPICS_MADE = RequiredPermission(
    (Action.CREATE,), ResourceKind.TOPIC, names_in_objects("topicConfigList", "topicName")
)
GROUP_MADE = RequiredPermission(
    (Action.CREATE,), ResourceKind.GROUP, names_in_objects(None, "groupName")
)
GROUPS_MADE = RequiredPermission(
    (Action.CREATE,), ResourceKind.GROUP, names_in_objects("groupConfigList", "groupName")
)
