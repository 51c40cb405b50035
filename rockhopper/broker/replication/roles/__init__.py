"""A broker as a replica of a set: its store as follower or master, and the change between them.

    set_member.py      following, promotion, serving, demotion
    role_changes.py    one change of role at a time
    store_period.py    what is open from the opening of the store to its closing
    replica_store.py   the store as replication sees it: open, truncate, start over
    setting_aside.py   setting a store aside before its log is replaced

replication/election makes the decisions; replication/state carries what is not in the log.
"""
