"""Compiles messaging.proto to messaging.binpb; needs grpcio-tools, which only this module uses.

With ``--check`` it only checks whether messaging.binpb is up to date.
"""

import sys
import tempfile
from pathlib import Path

HERE = Path(__file__).parent


def compile_descriptors() -> bytes:
    """Return the descriptor set of messaging.proto, without comments. Raises ImportError."""
    # Has no types, and is installed only where this module runs.
    from grpc_tools import protoc  # type: ignore[import-not-found, import-untyped, unused-ignore]

    well_known = Path(protoc.__file__).parent / "_proto"
    with tempfile.TemporaryDirectory() as directory:
        made = Path(directory) / "messaging.binpb"
        code = protoc.main(
            [
                "protoc",
                f"--proto_path={HERE}",
                f"--proto_path={well_known}",
                f"--descriptor_set_out={made}",
                "messaging.proto",
            ]
        )
        if code:
            raise SystemExit(code)
        return made.read_bytes()


def main() -> None:
    """Write messaging.binpb, or check it."""
    target = HERE / "messaging.binpb"
    if "--check" not in sys.argv[1:]:
        target.write_bytes(compile_descriptors())
    elif target.read_bytes() != compile_descriptors():
        raise SystemExit(
            f"{target.name} is not up to date with messaging.proto: run this without --check"
        )


if __name__ == "__main__":
    main()
