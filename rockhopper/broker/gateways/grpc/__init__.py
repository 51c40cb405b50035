"""The door for RocketMQ 5 clients: gRPC on a port of its own, in front of the same rooms.

    server.py        the port and its connections
    connection.py    one HTTP/2 connection: events in, calls served, answers out
    call.py          one call: what is asked, and how it is answered
    identity.py      who a call is from
    service.py       the table of RPCs: what serves each, and what its caller must be allowed
    sessions.py      clients by their id, whatever connections they come by
    commands.py      what the broker tells clients by their Telemetry streams
    statuses.py      what becomes of errors
    resources.py     names of topics and groups, with their namespaces
    sending_rules.py what a message must be to be stored
    converting.py    messages of the protocol from and to those of the store
    handles.py       receipt handles, and the renewal of those that a client leaves to us
    activities/      what serves the RPCs

It needs protobuf (the extra ``[grpc]``) and is imported only where grpcPort is set.
"""
