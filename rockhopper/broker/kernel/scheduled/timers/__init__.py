"""Timers: messages that are delivered at a time their producer names.

A timer message waits in queue 0 of rmq_sys_wheel_timer, as in RocketMQ. What is due when stands in
files of ours, one for each minute of delivery time: docs/decisions/0005-timers.md says why.

    times.py, recall_handle.py     what clients write and read
    entries.py, slot_files.py      the bytes on disk
    due.py, index.py               what is pending, by time
    following.py, importing.py     from the queue, or a store of RocketMQ's, to the index
    delivery.py, copies.py         from the index to the topics, once
    rolling.py                     ahead of retention
    recalling.py                   out of the index again
    checkpoint.py, java_files.py   what a start needs to know; what RocketMQ needs to know
    timers.py                      all of it, driven by the event loop
"""
