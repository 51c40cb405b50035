"""The status of a replica set from one replica's view: for operators, and in RocketMQ's format."""

from collections.abc import Mapping, Sequence

from rockhopper.broker.kernel.tables.json_table import JsonObject
from rockhopper.broker.replication.election.machine import Machine
from rockhopper.broker.replication.election.replica_set import Announcement, SetView
from rockhopper.broker.replication.election.replica_state import ReplicaState


def status(
    machine: Machine,
    view: SetView | None,
    *,
    replicated_offset: int,
    alarms: Mapping[str, str] | None = None,
    notes: Sequence[str] = (),
    replica_count: int = 0,
    holds_id: bool = True,
) -> JsonObject:
    """Return the set and each replica that is known or expected by haReplicas, as JSON values.

    *alarms* are texts by name. Without *holds_id*, another process is announced under this
    replica's id; the status of that member is then its announcement.
    """
    alarms = alarms or {}
    replica_state, term = machine.replica_state, machine.term
    state = view.state if view else None
    followers = term.followers if term else {}
    replicas = []
    members = dict(view.members) if view else {}
    stored = state.in_sync if state else frozenset()
    in_sync = {replica.id for replica in stored}
    leader_id = _leader_id(machine, view, holds_id=holds_id)
    for number in sorted({*members, *in_sync, *range(1, replica_count + 1)}):
        member = members.get(number)
        # If a replica's disk was exchanged, the in-sync store no longer exists.
        is_known = member is None or member.replica in stored
        link = next((f for replica, f in followers.items() if replica.id == number), None)
        # Below 0: connected, but the logs have not been compared yet.
        held = (
            link.acknowledgeable_offset
            if link and link.link is not None and link.acknowledgeable_offset >= 0
            else None
        )
        replicas.append(
            {
                "id": number,
                "address": member.address if member else "",
                "haAddress": member.ha_address if member else "",
                "ownAddress": member.own_address if member else "",
                "isRunning": member is not None,
                "isMaster": number == leader_id and is_known,
                "isInSync": number in in_sync and is_known,
                "isClean": member.is_clean if member else None,
                "logEnd": _log_end(member, replica_state, held) if member else None,
                "heldOffset": held,
            }
        )
    return {
        "id": replica_state.me.id,
        "store": replica_state.me.store,
        "holdsId": holds_id,
        "role": machine.role.value,
        "epoch": state.epoch if state else 0,
        "promise": replica_state.voted_epoch,
        "masterId": state.master.id if state else 0,
        "leaderId": leader_id,
        "minInSyncReplicas": state.min_in_sync if state else 0,
        "logStart": replica_state.log_start,
        "logEnd": replica_state.log_end,
        "confirmedOffset": replicated_offset,
        "isClean": replica_state.is_clean,
        "alarms": list(alarms.values()),
        "alarmNames": list(alarms),
        "notes": list(notes),
        "replicas": replicas,
        "history": [
            {"epoch": term.epoch, "masterId": term.master.id, "why": term.why}
            for term in (state.history if state else ())
        ],
    }


def _leader_id(machine: Machine, view: SetView | None, *, holds_id: bool) -> int:
    """Return the id of the replica that leads now; 0 if none is known here.

    A lease outlives a process that has ended, even if that process's successor already runs.
    """
    own_id = machine.replica_state.me.id
    if machine.term:
        return own_id
    leader = view.leader if view else None
    if view is None or leader is None or (leader.id == own_id and holds_id):
        return 0
    member = view.members.get(leader.id)
    return leader.id if member is None or member.incarnation == leader.incarnation else 0


def _log_end(
    member: Announcement, replica_state: ReplicaState, acknowledgeable_offset: int | None
) -> int:
    """Return the known end of a replica's log; its announcement is always somewhat old."""
    if member.incarnation == replica_state.incarnation:
        return replica_state.log_end
    return max(member.log_end, acknowledgeable_offset or 0)


def ha_runtime_info(machine: Machine, view: SetView | None) -> JsonObject:
    """Return RocketMQ's HARuntimeInfo."""
    replica_state, term = machine.replica_state, machine.term
    members = view.members if view else {}
    state = view.state if view else None
    in_sync = state.in_sync if state else frozenset()
    master = members.get(state.master.id) if state else None
    connections = [
        {
            "addr": members[replica.id].ha_address if replica.id in members else "",
            "slaveAckOffset": max(follower.acknowledgeable_offset, 0),
            "diff": replica_state.log_end - max(follower.acknowledgeable_offset, 0),
            "inSync": replica in in_sync,
            "transferredByteInSecond": 0,
            "transferFromWhere": max(follower.acknowledgeable_offset, 0),
        }
        for replica, follower in (term.followers.items() if term else ())
        if follower.link is not None
    ]
    return {
        "master": term is not None,
        "masterCommitLogMaxOffset": replica_state.log_end
        if term
        else (master.log_end if master else 0),
        "inSyncSlaveNums": max(len(in_sync) - 1, 0),
        "haConnectionInfo": connections,
        "haClientRuntimeInfo": {
            "masterAddr": "" if term or not master else master.ha_address,
            "maxOffset": replica_state.log_end,
            "lastReadTimestamp": 0,
            "lastWriteTimestamp": 0,
            "masterFlushOffset": 0,
            "transferredByteInSecond": 0,
            "isActivated": machine.following.link is not None,
        },
    }


def epoch_cache(machine: Machine, cluster: str, broker: str, broker_id: int) -> JsonObject:
    """Return RocketMQ's EpochEntryCache."""
    replica_state = machine.replica_state
    ends = [epoch.start_offset for epoch in replica_state.epochs[1:]] + [replica_state.log_end]
    return {
        "clusterName": cluster,
        "brokerName": broker,
        "brokerId": broker_id,
        "epochList": [
            {"epoch": epoch.number, "startOffset": epoch.start_offset, "endOffset": end}
            for epoch, end in zip(replica_state.epochs, ends, strict=True)
        ]
        if replica_state.epochs
        else [],
        "maxOffset": replica_state.log_end,
    }
