"""The requests of pop: popping, acknowledging, and queues shared out by the broker.

popping.py      200050 to 200055 and 200151
checks.py       their checks
assignment.py   400 to 402
plain_acks.py   acknowledgements that the hot pass serves together
"""
