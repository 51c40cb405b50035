"""The consensus engine over etcd, through its JSON gateway.

forms.py        etcd's requests and answers in JSON
horizon.py      refuses answers from before what was already seen
gateway.py      several endpoints, and a user's token
engine.py       Engine: elections, leases and watches
"""
