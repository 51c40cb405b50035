"""Common code of the consensus engines.

connection.py    HTTP/1.1 on one connection
connections.py   the open connections to a service, time limits, and readable errors
values.py        the stored values of a set
complaints.py    failed requests in the log, each reason once a minute
set_record.py    a whole set as one value
sightings.py     whether a lease is still renewed, by the observer's clock
record_engine.py Engine over any store that replaces one record by compare-and-swap
"""
