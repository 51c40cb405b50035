"""Pop consumption: the broker keeps the cursor, messages are acknowledged one by one.

lanes.py        what is known of each group and queue, and the journal records that say so
journal.py      the files of the journal
ordered.py      what an orderly pop has handed out of a queue
reading.py      from a consume queue to the body of an answer
polling.py      pops and notifications that wait for messages
reviving.py     what becomes of messages that nobody acknowledged in time
in_order.py     orderly pops
service.py      all of it together: what Broker constructs, starts and stops
processors.py   the request codes, their checks and their answers
extra_info.py   the texts in which clients carry what the broker must know again
request_modes.py   which groups share queues out so (401, 402)
compaction.py   the journal anew, without what is obsolete
"""
