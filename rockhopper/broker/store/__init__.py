"""RocketMQ's store directory: commit log, consume queues, index. MessageStore is the door."""
