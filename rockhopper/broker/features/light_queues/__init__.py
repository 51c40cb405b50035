"""Light queues: queues that need no topic and contain messages of other queues."""
