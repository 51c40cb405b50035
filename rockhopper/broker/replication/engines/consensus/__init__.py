"""What engines of consensus have in common.

connection.py    HTTP/1.1 on one connection
connections.py   those that are open to a service, their time limits, and what went wrong in words
values.py        what is stored of a set
complaints.py    why a request failed, told once in a while
set_record.py    a whole set as one value
sightings.py     whether a lease is still renewed, by the clock of who looks
record_engine.py Engine over anything that replaces one record by compare-and-swap
"""
