"""The parts of the push consumer (client.consumer).

settings        the checked settings of a consumer
subscriptions   topics and filters from the application's arguments
allocation      decides which member of a group reads which queues, exactly as RocketMQ does
process_queue   one queue of this consumer: messages waiting, in flight, finished
fetching        fills a process queue by long polling
handout         delivers messages one by one and takes the outcomes
redelivery      requests redelivery of a failed message: send-back, its fallback, dead letters
progress        the group's offsets: at the brokers, or in a local file (broadcast)
locks           locks on queues (orderly)
assignment      the queues held now: takes over, releases, resets
rebalancing     repeatedly computes which queues this consumer should hold
notifications   requests that brokers send to a consumer
"""
