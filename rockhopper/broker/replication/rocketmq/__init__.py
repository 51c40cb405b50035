"""RocketMQ's own replication: a master that its slaves follow, and a slave of its master."""
