"""Archives of commit logs, as the job archive creates them, without Spark."""

from pathlib import Path

import pyarrow.compute as pc

from rockhopper.pipeline.jobs.archiving.catalog import Catalog
from rockhopper.pipeline.jobs.archiving.files import files_at
from rockhopper.pipeline.jobs.archiving.manifest import Manifest
from rockhopper.pipeline.jobs.archiving.writing import FILE_COLUMNS, SplitWriter, WriteTarget
from tests.support.written_logs import WrittenLog, store_reader


def archive_of(log: WrittenLog, directory: Path, broker: str = "broker-a", end: int = -1) -> Path:
    """Archive the part of a log before *end*, like the job archive."""
    files = files_at(str(directory))
    files.create_directory("_rockhopper")
    catalog = Catalog(files)
    staging = catalog.create_staging(1)
    writer = SplitWriter(WriteTarget(str(directory), staging, 1), 0)
    options = {"brokerName": broker, "columns": ",".join(("topic", *FILE_COLUMNS))}
    reader = store_reader(log.root, options | ({"endPhysOffset": end} if end >= 0 else {}))
    for partition in reader.partitions():
        for batch in reader.read(partition):
            for topic in sorted(set(batch.column("topic").to_pylist())):
                part = batch.filter(pc.equal(batch.column("topic"), topic))
                writer.write_batch(topic, part.select(FILE_COLUMNS))
    written = writer.finish()
    manifest = Manifest(1, 0, {}, FILE_COLUMNS, None, tuple(written.files))
    catalog.commit(manifest, written.staged)
    return directory
