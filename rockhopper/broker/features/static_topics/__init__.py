"""Static topics: logical queues whose number stays the same while they move between brokers."""
