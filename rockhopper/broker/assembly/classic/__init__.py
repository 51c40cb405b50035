"""A master that RocketMQ's slaves follow, by the classic replication of haListenPort.

    slaves.py    who follows, and what their reports confirm; without I/O
    feed.py      one slave's connection: its reports, the log, heartbeats
    master.py    the port, and what a store waits for because of it

The other side is assembly/following; what slaves ask at listenPort is processors/classic.py's.
"""
