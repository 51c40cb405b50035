"""The engine of consensus over etcd, by its JSON gateway.

connection.py   HTTP/1.1 on one connection
forms.py        etcd's requests and answers in JSON
horizon.py      who answers from the past is refused
gateway.py      several endpoints, a user's token, and what went wrong in words
values.py       what is stored under the keys of a set
engine.py       Engine: elections, leases and watches
"""
