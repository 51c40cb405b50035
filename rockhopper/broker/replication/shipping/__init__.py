"""A replica that runs: the machine's actions done, over sockets, disk and engine."""
