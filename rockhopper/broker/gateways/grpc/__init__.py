"""The gateway for RocketMQ 5 clients: gRPC on its own port, in front of the broker's kernel.

    server.py        the port and its connections
    connection.py    one HTTP/2 connection: events in, calls served, answers out
    call.py          one call: its request, and how it is answered
    identity.py      authentication of a call
    service.py       the table of RPCs: their functions and required permissions
    sessions.py      clients by id, whatever connections they use
    commands.py      the broker's commands to clients, over their Telemetry streams
    statuses.py      converts errors to statuses
    resources.py     names of topics and groups, with their namespaces
    sending_rules.py validation of messages before they are stored
    converting.py    converts messages between the protocol and the store
    activities/      the functions of the RPCs

It needs protobuf (the extra ``[grpc]``) and is imported only if grpcPort is set.
"""
