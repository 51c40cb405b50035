"""RocketMQ's store directory: commit log, consume queues, index. Called through MessageStore only."""
