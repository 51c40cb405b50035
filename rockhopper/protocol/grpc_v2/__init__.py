"""The protocol of RocketMQ 5 clients: its messages, and the texts that they carry.

messaging.proto      the service and its messages, as its author would read them
messaging.binpb      the same as a descriptor set, made by ``python -m …protocol.grpc_v2``
messages.py          the message classes; needs protobuf, of the extra [grpc]
codes.py             status codes of replies, and of gRPC itself
framing.py           messages on a stream, behind five bytes each
receipt_handle.py    what a consumer gives back when it acknowledges
transaction_id.py    what a producer gives back when it ends a transaction
"""
