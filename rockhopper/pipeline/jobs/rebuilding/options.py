"""The options of ``rebuild``."""

from dataclasses import KW_ONLY, dataclass

from rockhopper.pipeline.jobs.options import StoreOptions, option, size


@dataclass(frozen=True)
class RebuildOptions(StoreOptions):
    """Rebuild the store at *path* into *output* or in place."""

    output: str | None = option(
        "--output", metavar="DIRECTORY", help="Write queues and index here."
    )
    _: KW_ONLY
    in_place: bool = option(
        "--in-place",
        default=False,
        is_flag=True,
        help=(
            "Write into the store, whose broker must be stopped; the former files are moved aside."
        ),
    )
    queue_file_size: int | None = option(
        "--queue-file-size", parse=size, metavar="SIZE", help="mappedFileSizeConsumeQueue."
    )
    batch_queue_file_size: int | None = option(
        "--batch-queue-file-size",
        parse=size,
        metavar="SIZE",
        help="mapperFileSizeBatchConsumeQueue.",
    )
