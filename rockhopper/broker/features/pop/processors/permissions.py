"""The permissions of pop requests that name topics and groups in their bodies."""

from rockhopper.broker.kernel.processors.permissions import (
    names_in_body,
    on_topic_and_group,
    on_topics_and_groups,
)
from rockhopper.broker.server.remoting.permissions import Names, RequiredPermission
from rockhopper.broker.users.access import Action, ResourceKind
from rockhopper.protocol.bodies.popping import (
    BatchAckMessageRequestBody,
    QueryAssignmentRequestBody,
    SetMessageRequestModeRequestBody,
)


def _acknowledged(topics_or_groups: str) -> Names:
    return names_in_body(
        BatchAckMessageRequestBody,
        lambda body: [getattr(ack, topics_or_groups) for ack in body.acks],
    )


ASSIGNED = on_topics_and_groups(
    Action.SUB,
    names_in_body(QueryAssignmentRequestBody, lambda body: [body.topic]),
    names_in_body(QueryAssignmentRequestBody, lambda body: [body.consumer_group]),
)
SET_REQUEST_MODE = RequiredPermission(
    (Action.UPDATE,),
    ResourceKind.GROUP,
    names_in_body(SetMessageRequestModeRequestBody, lambda body: [body.consumer_group]),
)
ACKNOWLEDGED = on_topics_and_groups(Action.SUB, _acknowledged("topic"), _acknowledged("group"))
AWAITED = on_topic_and_group(Action.GET, group_field="consumerGroup")
