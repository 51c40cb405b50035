"""What an application asks of a consumer beside messages: batches, pauses, news of its queues."""
