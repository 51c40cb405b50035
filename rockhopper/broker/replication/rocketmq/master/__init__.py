"""A master that RocketMQ's slaves follow, by the classic replication of haListenPort.

    slaves.py    the connected slaves, and what their reports confirm; without I/O
    feed.py      one slave's connection: its reports, the log, heartbeats
    master.py    the port, and what makes the store wait for slaves

The other side is replication/rocketmq/slave. replication/rocketmq/master/processors.py answers what
slaves request at listenPort.
"""
