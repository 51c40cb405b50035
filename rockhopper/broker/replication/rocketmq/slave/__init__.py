"""Following a RocketMQ master: what copies its log and tables, and when it may take over.

    table_copies.py    topics, groups and offsets, from its answers to our tables
    log_copier.py      its log, by the classic replication of haListenPort
    follower.py        all of it together: the store that follows, its lag, and the takeover
    note.py            that a store follows, for the next start

The master is asked by name_server/followed_master.py; what clients are told meanwhile is
kernel/processors/slave.py's.
"""
