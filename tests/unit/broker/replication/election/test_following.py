"""A follower greets, promises, cuts, and only then acknowledges."""

from rockhopper.broker.replication.election.actions import (
    Action,
    Alarm,
    Close,
    Confirm,
    Cut,
    NoteClean,
    Open,
    SendMessage,
    StoreVotedEpoch,
)
from rockhopper.broker.replication.election.epochs import Epoch
from rockhopper.broker.replication.election.following import Following
from rockhopper.broker.replication.election.messages import Ack, Beat, Hello, Refused, Welcome
from rockhopper.broker.replication.election.replica_set import Replica
from rockhopper.broker.replication.election.replica_state import ReplicaState
from rockhopper.broker.replication.election.timing import Timing

MASTER, ME = Replica(1, "s1"), Replica(2, "s2")
EPOCHS = (Epoch(1, 0), Epoch(3, 90))


class Rig:
    """A follower whose log ends at 100, connected on link 9."""

    def __init__(self, **replica_state: object) -> None:
        fields: dict[str, object] = {
            "voted_epoch": 1,
            "log_end": 100,
            "acknowledgeable_offset": 100,
            "replicated_offset": 80,
        }
        fields["epochs"] = EPOCHS[:1]
        self.replica_state = ReplicaState(ME, "i", **{**fields, **replica_state})  # type: ignore[arg-type]
        self.out: list[Action] = []
        self.following = Following(self.replica_state, Timing(), self.out, 0)
        self.following.follow(MASTER, 0)
        self.following.opened(9, MASTER.id, 0)

    def taken(self) -> list[Action]:
        actions, self.out[:] = list(self.out), []
        return actions

    def welcome(self, epoch: int = 3, common_end: int = 95, *, seed: bool = False) -> list[Action]:
        self.taken()
        message = Welcome(epoch, EPOCHS, 10, 200, 120, common_end, seed)
        self.following.received(message, 0)
        return self.taken()

    def joined(self) -> list[Action]:
        self.welcome()
        self.following.voted_epoch_stored(3)
        self.replica_state.log_end = self.replica_state.acknowledgeable_offset = 95
        self.following.log_is_cut()
        return self.taken()


def test_it_greets_with_what_it_has() -> None:
    opened, greeting = Rig().taken()
    assert opened == Open(1)
    assert greeting == SendMessage(9, Hello(ME, "i", 1, True, 80, 100, EPOCHS[:1]))


def test_it_stores_its_voted_epoch_before_it_cuts_and_cuts_before_it_acknowledges() -> None:
    rig = Rig()
    assert rig.welcome() == [StoreVotedEpoch(3)]
    rig.following.voted_epoch_stored(3)
    assert rig.taken() == [Cut(95, EPOCHS)]
    rig.replica_state.acknowledgeable_offset = 95
    rig.following.log_is_cut()
    assert SendMessage(9, Ack(3, 95, True)) in rig.taken()


def test_a_master_of_a_smaller_epoch_is_told() -> None:
    rig = Rig(voted_epoch=5)
    assert rig.welcome() == [
        SendMessage(9, Refused(5, "this replica voted for a higher epoch")),
        Close(9),
    ]


def test_a_master_that_the_engine_deposed_is_told() -> None:
    rig = Rig()
    rig.following.elected_epoch = 4
    assert rig.welcome()[0] == SendMessage(9, Refused(4, "this replica voted for a higher epoch"))


def test_nothing_is_taken_after_a_larger_voted_epoch() -> None:
    rig = Rig()
    rig.joined()
    assert rig.following.takes(9, 3)
    rig.replica_state.voted_epoch = 4
    assert not rig.following.takes(9, 3)
    assert rig.taken()[-1] == Close(9)


def test_what_was_confirmed_is_never_cut() -> None:
    rig = Rig()
    rig.welcome(common_end=79)
    rig.following.voted_epoch_stored(3)
    alarm, closed = rig.taken()
    assert isinstance(alarm, Alarm)
    assert "reseed 2" in alarm.text
    assert closed == Close(9)
    assert rig.replica_state.is_fenced


def test_a_replica_that_lost_its_tail_is_not_fenced_for_it() -> None:
    rig = Rig(log_end=60, acknowledgeable_offset=60)
    rig.welcome(common_end=60)
    rig.following.voted_epoch_stored(3)
    assert rig.taken() == [Cut(60, EPOCHS)]


def test_what_was_confirmed_is_not_replaced_either_when_the_master_deleted_the_rest() -> None:
    rig = Rig()
    rig.welcome(common_end=5, seed=True)
    rig.following.voted_epoch_stored(3)
    assert isinstance(rig.taken()[0], Alarm)


def test_a_log_that_was_outrun_begins_anew() -> None:
    rig = Rig()
    rig.welcome(common_end=100, seed=True)
    rig.following.voted_epoch_stored(3)
    assert rig.taken() == [Cut(10, EPOCHS, seed=True)]


def test_a_log_that_had_begun_anew_and_is_empty_yet_does_so_again() -> None:
    rig = Rig(log_start=100)
    rig.welcome(common_end=0, seed=True)
    rig.following.voted_epoch_stored(3)
    assert rig.taken() == [Cut(10, EPOCHS, seed=True)]


def test_a_log_that_was_given_up_begins_anew() -> None:
    rig = Rig(epochs=())
    rig.welcome(common_end=0, seed=True)
    rig.following.voted_epoch_stored(3)
    assert rig.taken() == [Cut(10, EPOCHS, seed=True)]


def test_a_log_that_was_given_up_begins_anew_though_it_ends_where_the_masters_begins() -> None:
    rig = Rig(epochs=(), log_end=10, acknowledgeable_offset=10)
    rig.welcome(common_end=10)
    rig.following.voted_epoch_stored(3)
    assert rig.taken() == [Cut(10, EPOCHS, seed=True)]


def test_a_beat_confirms_what_the_log_has() -> None:
    rig = Rig()
    rig.joined()
    rig.following.received(Beat(3, 300), 0)
    confirm, ack = rig.taken()
    assert confirm == Confirm(95)
    assert isinstance(ack, SendMessage)


def test_a_replica_is_clean_again_when_it_holds_what_was_confirmed() -> None:
    rig = Rig(is_clean=False)
    assert SendMessage(9, Ack(3, 95, False)) in rig.joined()
    rig.replica_state.log_end = rig.replica_state.acknowledgeable_offset = 120
    rig.following.acknowledge()
    assert NoteClean() in rig.taken()
    rig.replica_state.is_clean = True
    rig.following.noted_clean()
    assert rig.taken() == [SendMessage(9, Ack(3, 120, True))]


def test_being_refused_is_no_word_of_a_master() -> None:
    rig = Rig()
    rig.following.received(Refused(7, "not the master"), 500)
    assert rig.following.heard_at_ms == 0
    assert rig.following.larger_epoch == 7


def test_refused_connections_are_counted_in_a_row() -> None:
    following = Following(ReplicaState(ME, "i"), Timing(), [], 0)
    following.follow(MASTER, 0)
    following.not_opened(MASTER.id, 0, is_refused=True)
    following.follow(MASTER, 50)
    following.not_opened(MASTER.id, 50, is_refused=True)
    assert following.refusals == 2
    following.follow(MASTER, 1000)
    following.not_opened(MASTER.id, 1000, is_refused=False)
    assert following.refusals == 0


def test_a_silent_connection_is_given_up() -> None:
    rig = Rig()
    rig.taken()
    rig.following.follow(MASTER, Timing().connection_ms)
    assert rig.taken() == [Close(9), Open(1)]


def test_a_master_that_hangs_keeps_nobody_from_the_next_one() -> None:
    out: list[Action] = []
    following = Following(ReplicaState(ME, "i"), Timing(), out, 0)
    following.follow(MASTER, 0)
    next_master = Replica(3, "s3")
    following.follow(next_master, 10)
    assert out == [Open(MASTER.id), Open(3)]
    following.not_opened(MASTER.id, 20, is_refused=True)
    assert following.refusals == 0
    following.opened(5, MASTER.id, 30)
    assert out[-1] == Close(5)
    following.follow(next_master, 40)
    assert out.count(Open(3)) == 1
    following.opened(6, 3, 50)
    assert following.link == 6
