"""RocketMQ's own replication: a master with slaves, and a slave that follows a master."""
