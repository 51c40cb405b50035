"""What the push consumer (client.consumer) is made of.

settings        what a consumer was asked to do, checked
subscriptions   topics and filters from what the application gave
allocation      which member of a group reads which queues: RocketMQ's rules, exactly
process_queue   one queue that this consumer holds: what is waiting, handed out, finished
fetching        fills a process queue by long polling
handout         hands out messages one after the other, and takes the outcomes
redelivery      asks for a failed message again: send-back, its fallback, dead letters
progress        where a group stands: at the brokers, or in a local file (broadcast)
locks           queues held by this consumer alone (orderly)
assignment      the queues held now: taken over, given up, reset
rebalancing     finds out what this consumer should hold, again and again
notifications   what brokers ask of a consumer
"""
