def read_requests(
    data: bytes,
    position: int,
    last_stream_id: int,
    room: int,
    entries: list[tuple[str, str]],
    table_size: int,
    table_size_max: int,
    /,
) -> tuple[list[tuple[int, dict[str, str], bytes | None]], int, int, int, int]: ...
def encode_answer(stream_id: int, block: bytes, data: bytes, trailers: bytes, /) -> bytes: ...
def set_tables(
    static_table: tuple[tuple[str, str], ...], sound_names: set[str], lengths: bytes, /
) -> None: ...
