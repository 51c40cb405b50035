"""The protocol of RocketMQ 5 clients: its messages, and the texts inside them.

messaging.proto      the service and its messages, readable
messaging.binpb      the same as a descriptor set, made by ``python -m …protocol.grpc_v2``
messages.py          the message classes; needs protobuf, of the extra [grpc]
codes.py             status codes of replies, and of gRPC itself
framing.py           messages on a stream, with a head of five bytes each
receipt_handle.py    the handle with which a consumer acknowledges a message
transaction_id.py    the id with which a producer ends a transaction
"""
