from rockhopper.broker.hot.similar_requests import RequestShape, Rows
from rockhopper.protocol.frame import Frame

def read_similar(
    frames: list[Frame], first: int, shape: RequestShape, /
) -> tuple[tuple[str, ...], Rows]: ...
def encode_similar(head: bytes, tail: bytes, opaques: list[int], /) -> bytes: ...
