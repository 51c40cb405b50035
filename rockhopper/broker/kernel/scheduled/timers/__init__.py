"""Timers: messages that are delivered at a time chosen by their producer.

A timed message waits in queue 0 of rmq_sys_wheel_timer, as in RocketMQ. The due times are in
Rockhopper's own files, one for each minute of delivery time; docs/decisions/0005-timers.md gives
the reasons.

    times.py, recall_handle.py     the formats that clients write and read
    entries.py, slot_files.py      the formats on disk
    due.py, index.py               the pending messages, by time
    following.py, importing.py     from the queue, or a RocketMQ store, to the index
    delivery.py, copies.py         from the index to the topics, once
    rolling.py                     appends messages again before retention deletes them
    recalling.py                   removes messages from the index
    checkpoint.py, java_files.py   the state for the next start, and for RocketMQ
    timers.py                      the whole, driven by the event loop
"""
