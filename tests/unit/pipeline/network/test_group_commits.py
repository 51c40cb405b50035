"""A stream commits for a group that is its own, and for nobody else's."""

from collections.abc import Collection
from typing import Any

import pytest

from rockhopper.client.queues import MessageQueue
from rockhopper.pipeline.errors import PipelineError
from rockhopper.pipeline.network.group_commits import GroupCommits
from rockhopper.pipeline.network.positions import Offsets
from rockhopper.pipeline.network.rules import read_rules
from rockhopper.pipeline.network.stream_offset import StreamOffset
from rockhopper.pipeline.remote import LogPasts

A0, A1 = MessageQueue("t", "a", 0), MessageQueue("t", "a", 1)


class Group:
    """The group at the brokers."""

    def __init__(self) -> None:
        self.online: list[str] = []
        self.offsets: Offsets = {}
        self.past = LogPasts({}, {})

    def members(self) -> list[str]:
        return self.online

    def committed(self, queues: Collection[MessageQueue]) -> Offsets:
        return {queue: at for queue, at in self.offsets.items() if queue in queues}

    def commit(self, offsets: Offsets) -> None:
        self.offsets |= offsets


@pytest.fixture
def group() -> Group:
    return Group()


def commits(group: Group, **options: str) -> GroupCommits:
    given = {"nameServer": "ns", "subscribe": "t", "groupId": "g", "commitOffsets": "onBatch"}
    found: Any = group
    return GroupCommits(read_rules(given | options, streaming=True), found)


def begun(offsets: Offsets) -> StreamOffset:
    return StreamOffset(offsets, offsets, is_fresh=True)


def done(offsets: Offsets, group: str = "g") -> StreamOffset:
    return StreamOffset(offsets, {}, group=group)


def test_a_group_of_nobody_becomes_the_query_s_own(group: Group) -> None:
    it = commits(group)
    first = begun({A0: 0, A1: 0})
    it.advance(first)
    assert (first.group, group.offsets) == ("g", {})
    assert StreamOffset.read(first.document()).group == "g"
    it.advance(done({A0: 5, A1: 0}))
    it.advance(done({A0: 9, A1: 0}))
    assert group.offsets == {A0: 9, A1: 0}
    commits(group).advance(done({A0: 12, A1: 1}))  # after a restart
    assert group.offsets == {A0: 12, A1: 1}


def test_a_group_with_members_is_refused_whenever_they_come(group: Group) -> None:
    it = commits(group)
    it.advance(begun({A0: 0}))
    group.online = ["app@1"]
    for again in (it, commits(group)):
        with pytest.raises(PipelineError, match=r"the group 'g' has members \(app@1\).* set a gr"):
            again.advance(done({A0: 5}))
    assert group.offsets == {}


def test_a_group_with_offsets_of_others_is_refused(group: Group) -> None:
    group.offsets = {A1: 40}
    for starting in ("earliest", "latest"):
        with pytest.raises(PipelineError, match="'g' stands at offset 40 of t/a/1, which this"):
            commits(group, startingOffsets=starting).advance(begun({A0: 0, A1: 40}))
    # A checkpoint from before commitOffsets was set, and from another group.
    for before in ("", "other"):
        with pytest.raises(PipelineError, match="stands at offset 40"):
            commits(group).advance(done({A0: 5, A1: 200}, before))
    assert group.offsets == {A1: 40}


def test_what_somebody_else_commits_meanwhile_is_noticed(group: Group) -> None:
    it = commits(group)
    it.advance(done({A0: 5}))
    for at in (3, 7):
        group.offsets = {A0: at}
        with pytest.raises(PipelineError, match=f"stands at offset {at}"):
            it.advance(done({A0: 9}))
    with pytest.raises(PipelineError, match="stands at offset 7"):
        commits(group).advance(done({A0: 5}))


def test_offsets_that_a_shorter_log_took_back_are_the_query_s(group: Group) -> None:
    it = commits(group)
    it.advance(done({A0: 9}))
    group.offsets, group.past = {A0: 4}, LogPasts({}, {A0: 4})
    it.advance(done({A0: 6}))
    assert group.offsets == {A0: 6}


def test_a_query_may_go_on_where_its_group_stands(group: Group) -> None:
    group.offsets = {A0: 40}
    it = commits(group, startingOffsets="committed")
    it.advance(begun({A0: 40, A1: 0}))
    it.advance(done({A0: 50, A1: 0}))
    assert group.offsets == {A0: 50, A1: 0}


def test_an_older_checkpoint_goes_on_where_it_has_committed(group: Group) -> None:
    group.offsets = {A0: 40}
    at = done({A0: 40, A1: 0}, "")
    commits(group).advance(at)
    assert at.group == "g"


def test_without_the_option_nothing_is_asked_or_committed(group: Group) -> None:
    group.online = ["app@1"]
    at = done({A0: 5}, "")
    commits(group, commitOffsets="none").advance(at)
    assert (at.group, group.offsets) == ("", {})
