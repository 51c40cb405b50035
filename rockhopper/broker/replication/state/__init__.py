"""What is not in the commit log, and reaches the replicas of a set all the same: as records of it.

    state_records.py    the records of the topic rmq_sys_rockhopper_state, as bytes
    state_log.py        a master's end of that topic: records, and that none of them is lost
    state_writer.py     what a master tells while it leads: every change, and all of it at times
    snapshot.py         all of it
    kept_tables.py      the tables that are told of, and by which names
    kept_state.py       what a follower has of all that: the files that a broker opens at its start
    state_applier.py    a follower's end of the topic: in order, up to what is confirmed
    applied.py          how far that is, for the next start

A follower that becomes master opens its files as after a kill: what stands in the log was applied.
"""
