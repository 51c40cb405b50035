"""The server side of HTTP/2 (RFC 9113, RFC 7541), without sockets, gRPC or a broker.

huffman.py       the Huffman code of header texts
hpack.py         header blocks
frames.py        frames as bytes, and their constants
settings.py      the limits that each side sets for the other
semantics.py     the valid header fields of a request
streams.py       one request and its answer: states, windows, data waiting to be sent
ordinary_requests.py  compiled code for the requests of ordinary clients
floods.py        limits on frames that cost a peer nothing
connection.py    the connection: bytes in, events and bytes out
"""
