"""Pop consumption for RocketMQ 5 clients: what serves their RPCs. Needs protobuf.

receiving.py    ReceiveMessage
settling.py     AckMessage, ChangeInvisibleDuration, ForwardMessageToDeadLetterQueue
handles.py      receipt handles, and their renewal on a client's behalf
"""
