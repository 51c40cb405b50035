"""HTTP/2 as a server speaks it (RFC 9113, RFC 7541), without sockets, gRPC or a broker.

huffman.py       the code of header texts
hpack.py         header blocks
frames.py        frames as bytes, and the numbers in them
settings.py      what each side may ask of the other
semantics.py     which header fields make a request
streams.py       one request and its answer: states, windows, what waits to be sent
floods.py        how much of what costs nothing to send a peer may send
connection.py    all of it together: bytes in, events and bytes out
"""
