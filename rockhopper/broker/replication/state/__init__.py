"""Replicated state: what is not in messages reaches a set's replicas as records in the log.

    state_log.py        a master's side: writes records to rmq_sys_rockhopper_state, losing none
    state_writer.py     what a master writes while it leads: every change, and snapshots
    snapshot.py         the complete state
    state_applier.py    a follower's side of the topic: in order, up to the confirmed offset, into
                        the files that a broker opens at its start
    applied.py          the position that was applied, for the next start

kernel/persistence.py declares what is replicated, and kernel/state_records.py describes the format
of the records. A follower that becomes master opens
its files as after a kill: everything in the log was applied.

    a group commits offset 10 and later 20; the master writes OFFSETS 10, then OFFSETS 20
    the master crashes after a follower has confirmed the first record
    the follower leads, and the group continues at 10: it receives 10 to 19 again
"""
