"""Admin without `await`."""

from typing import Any

from rockhopper.client.admin import accounts, admin, admin_groups, dead_letters
from rockhopper.client.consuming import queue_offsets
from rockhopper.client.sync.face import Face, FacePart, iterates, looks, made_like, waits


class GroupAdmin(FacePart[admin_groups.GroupAdmin]):
    """Consumer groups: members, lag, resets."""

    names = waits(admin_groups.GroupAdmin.names)
    states = waits(admin_groups.GroupAdmin.states)
    state = waits(admin_groups.GroupAdmin.state)
    lag = waits(admin_groups.GroupAdmin.lag)
    online = waits(admin_groups.GroupAdmin.online)
    progress = waits(admin_groups.GroupAdmin.progress)
    progress_in = waits(admin_groups.GroupAdmin.progress_in)
    create = waits(admin_groups.GroupAdmin.create)
    plan_reset = waits(admin_groups.GroupAdmin.plan_reset)
    reset_offsets = waits(admin_groups.GroupAdmin.reset_offsets)
    delete = waits(admin_groups.GroupAdmin.delete)


class DeadLetters(FacePart[dead_letters.DeadLetters]):
    """Dead letters of groups, and sending them back."""

    counts = waits(dead_letters.DeadLetters.counts)
    count = waits(dead_letters.DeadLetters.count)
    read = iterates(dead_letters.DeadLetters.read)
    requeue = iterates(dead_letters.DeadLetters.requeue)


class Accounts(FacePart[accounts.Accounts]):
    """Users and access rules."""

    add_user = waits(accounts.Accounts.add_user)
    change_secret = waits(accounts.Accounts.change_secret)
    remove_user = waits(accounts.Accounts.remove_user)
    users = waits(accounts.Accounts.users)
    add_rule = waits(accounts.Accounts.add_rule)
    add_account = waits(accounts.Accounts.add_account)
    remove_rules = waits(accounts.Accounts.remove_rules)
    rules = waits(accounts.Accounts.rules)
    decision = waits(accounts.Accounts.decision)


class Offsets(FacePart[queue_offsets.QueueOffsets]):
    """Offsets of single queues: minimum, maximum, committed, by time."""

    min_offset = waits(queue_offsets.QueueOffsets.min_offset)
    max_offset = waits(queue_offsets.QueueOffsets.max_offset)
    offset_at = waits(queue_offsets.QueueOffsets.offset_at)
    earliest_store_time_ms = waits(queue_offsets.QueueOffsets.earliest_store_time_ms)
    committed = waits(queue_offsets.QueueOffsets.committed)
    commit = waits(queue_offsets.QueueOffsets.commit)


class Admin(Face[admin.Admin]):
    """Manages topics, offsets, messages, brokers and their settings; see rockhopper.Admin."""

    _reopens_in_child = True

    @made_like(admin.Admin)
    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(admin.Admin, *args, **kwargs)
        self.groups = GroupAdmin(self, lambda client: client.groups)
        self.dead_letters = DeadLetters(self, lambda client: client.dead_letters)
        self.accounts = Accounts(self, lambda client: client.accounts)
        self.offsets = Offsets(self, lambda client: client.offsets)

    topics = waits(admin.Admin.topics)
    route = waits(admin.Admin.route)
    forget_route = looks(admin.Admin.forget_route)
    create_topic = waits(admin.Admin.create_topic)
    queues_beyond = waits(admin.Admin.queues_beyond)
    delete_topic = waits(admin.Admin.delete_topic)
    purge_topic = waits(admin.Admin.purge_topic)
    ranges = waits(admin.Admin.ranges)
    range = waits(admin.Admin.range)
    message = waits(admin.Admin.message)
    messages_by_key = waits(admin.Admin.messages_by_key)
    brokers = waits(admin.Admin.brokers)
    departed_brokers = waits(admin.Admin.departed_brokers)
    away = waits(admin.Admin.away)
    masters = waits(admin.Admin.masters)
    broker_status = waits(admin.Admin.broker_status)
    describe_broker_config = waits(admin.Admin.describe_broker_config)
    broker_config = waits(admin.Admin.broker_config)
    update_broker_config = waits(admin.Admin.update_broker_config)
    take_over = waits(admin.Admin.take_over)
    request = waits(admin.Admin.request)
