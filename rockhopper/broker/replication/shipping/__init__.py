"""A running replica: performs the machine's actions over sockets, disk and engine."""
