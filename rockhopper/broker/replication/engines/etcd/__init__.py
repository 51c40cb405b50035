"""The engine of consensus over etcd, by its JSON gateway.

forms.py        etcd's requests and answers in JSON
horizon.py      who answers from the past is refused
gateway.py      several endpoints, and a user's token
engine.py       Engine: elections, leases and watches
"""
