"""A master that RocketMQ's slaves follow, by the classic replication of haListenPort.

    slaves.py    who follows, and what their reports confirm; without I/O
    feed.py      one slave's connection: its reports, the log, heartbeats
    master.py    the port, and what a store waits for because of it

The other side is replication/rocketmq/slave; what slaves ask at listenPort is
kernel/processors/classic.py's.
"""
