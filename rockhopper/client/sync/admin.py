"""Admin without `await`."""

from typing import Any

from rockhopper.client.admin import accounts, admin, admin_groups, dead_letters
from rockhopper.client.arguments import takes
from rockhopper.client.consuming import queue_offsets
from rockhopper.client.sync.face import (
    Face,
    FacePart,
    wrap_iterating,
    wrap_looking,
    wrap_waiting,
)


class GroupAdmin(FacePart[admin_groups.GroupAdmin]):
    """Consumer groups: members, lag, resets."""

    names = wrap_waiting(admin_groups.GroupAdmin.names)
    states = wrap_waiting(admin_groups.GroupAdmin.states)
    state = wrap_waiting(admin_groups.GroupAdmin.state)
    lag = wrap_waiting(admin_groups.GroupAdmin.lag)
    online = wrap_waiting(admin_groups.GroupAdmin.online)
    progress = wrap_waiting(admin_groups.GroupAdmin.progress)
    progress_in = wrap_waiting(admin_groups.GroupAdmin.progress_in)
    create = wrap_waiting(admin_groups.GroupAdmin.create)
    plan_reset = wrap_waiting(admin_groups.GroupAdmin.plan_reset)
    reset_offsets = wrap_waiting(admin_groups.GroupAdmin.reset_offsets)
    delete = wrap_waiting(admin_groups.GroupAdmin.delete)


class DeadLetters(FacePart[dead_letters.DeadLetters]):
    """Dead letters of groups, and sending them back."""

    counts = wrap_waiting(dead_letters.DeadLetters.counts)
    count = wrap_waiting(dead_letters.DeadLetters.count)
    read = wrap_iterating(dead_letters.DeadLetters.read)
    requeue = wrap_iterating(dead_letters.DeadLetters.requeue)


class Accounts(FacePart[accounts.Accounts]):
    """Users and access rules."""

    add_user = wrap_waiting(accounts.Accounts.add_user)
    change_secret = wrap_waiting(accounts.Accounts.change_secret)
    remove_user = wrap_waiting(accounts.Accounts.remove_user)
    users = wrap_waiting(accounts.Accounts.users)
    add_rule = wrap_waiting(accounts.Accounts.add_rule)
    add_account = wrap_waiting(accounts.Accounts.add_account)
    remove_rules = wrap_waiting(accounts.Accounts.remove_rules)
    rules = wrap_waiting(accounts.Accounts.rules)
    decision = wrap_waiting(accounts.Accounts.decision)


class Offsets(FacePart[queue_offsets.QueueOffsets]):
    """Offsets of single queues: minimum, maximum, committed, by time."""

    min_offset = wrap_waiting(queue_offsets.QueueOffsets.min_offset)
    max_offset = wrap_waiting(queue_offsets.QueueOffsets.max_offset)
    offset_at = wrap_waiting(queue_offsets.QueueOffsets.offset_at)
    earliest_store_time_ms = wrap_waiting(queue_offsets.QueueOffsets.earliest_store_time_ms)
    committed = wrap_waiting(queue_offsets.QueueOffsets.committed)
    commit = wrap_waiting(queue_offsets.QueueOffsets.commit)


class Admin(Face[admin.Admin]):
    """Manages topics, offsets, messages, brokers and their settings; see rockhopper.Admin."""

    _reopens_in_child = True

    @takes(admin.Admin)
    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(admin.Admin, *args, **kwargs)
        self.groups = GroupAdmin(self, lambda client: client.groups)
        self.dead_letters = DeadLetters(self, lambda client: client.dead_letters)
        self.accounts = Accounts(self, lambda client: client.accounts)
        self.offsets = Offsets(self, lambda client: client.offsets)

    topics = wrap_waiting(admin.Admin.topics)
    route = wrap_waiting(admin.Admin.route)
    forget_route = wrap_looking(admin.Admin.forget_route)
    create_topic = wrap_waiting(admin.Admin.create_topic)
    queues_beyond = wrap_waiting(admin.Admin.queues_beyond)
    delete_topic = wrap_waiting(admin.Admin.delete_topic)
    purge_topic = wrap_waiting(admin.Admin.purge_topic)
    ranges = wrap_waiting(admin.Admin.ranges)
    range = wrap_waiting(admin.Admin.range)
    message = wrap_waiting(admin.Admin.message)
    messages_by_key = wrap_waiting(admin.Admin.messages_by_key)
    brokers = wrap_waiting(admin.Admin.brokers)
    departed_brokers = wrap_waiting(admin.Admin.departed_brokers)
    away = wrap_waiting(admin.Admin.away)
    masters = wrap_waiting(admin.Admin.masters)
    broker_status = wrap_waiting(admin.Admin.broker_status)
    describe_broker_config = wrap_waiting(admin.Admin.describe_broker_config)
    broker_config = wrap_waiting(admin.Admin.broker_config)
    update_broker_config = wrap_waiting(admin.Admin.update_broker_config)
    take_over = wrap_waiting(admin.Admin.take_over)
    request = wrap_waiting(admin.Admin.request)
