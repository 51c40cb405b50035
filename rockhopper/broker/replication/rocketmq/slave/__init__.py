"""Following a RocketMQ master: copying its log and tables, and taking over from it.

    table_copies.py    topics, groups and offsets, from its answers to our tables
    log_copier.py      its log, by the classic replication of haListenPort
    follower.py        the whole: the store that follows, its lag, and the takeover
    following_file.py  records that a store follows, for the next start

name_server/followed_master.py sends the requests to the master;
replication/rocketmq/slave/processors.py answers clients meanwhile.
"""
