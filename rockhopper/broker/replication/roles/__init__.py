"""A broker as one replica of a set: its store under two roles, and the way from one to the other.

    set_member.py      following, promotion, serving, demotion
    replica_store.py   the store as replication sees it: opened, cut, begun anew
    setting_aside.py   a store whose log is to be replaced

What decides is replication/election; what is not in the log goes through replication/state.
"""
