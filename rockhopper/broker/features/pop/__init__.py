"""Pop consumption: the broker keeps the cursor, messages are acknowledged one by one.

lanes.py        the pop state of each group and queue, and its journal records
ordered.py      the messages that an orderly pop handed out
reading.py      builds answers from consume queues
polling.py      pops and notifications that wait for messages
reviving.py     redelivery of messages that were not acknowledged in time
in_order.py     orderly pops
service.py      the service that the broker constructs, starts and stops
processors/     the requests, their checks and their permissions
grpc/           the same for RocketMQ 5 clients
extra_info.py   the receipts that clients send back to the broker
request_modes.py   which groups pop instead of pull (401, 402)
compaction.py   rewrites the journal without obsolete records
"""
