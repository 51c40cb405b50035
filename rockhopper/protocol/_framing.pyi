from rockhopper.protocol.frame import Frame

def split_frames(
    data: bytes, frame_size_bytes_max: int, header_size_bytes_max: int, /
) -> tuple[list[Frame], int]: ...
