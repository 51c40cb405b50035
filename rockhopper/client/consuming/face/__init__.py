"""The consumer's features besides messages: batches, pauses, callbacks for its queues."""
