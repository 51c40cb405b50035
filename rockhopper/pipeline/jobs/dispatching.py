"""Plan how to read a store's log for its queues and index: rules and tasks."""

import os
from collections.abc import Sequence
from pathlib import Path

from rockhopper.pipeline.derived.dispatch_rules import DispatchRules, read_dispatch_rules
from rockhopper.pipeline.derived.geometry import Geometry
from rockhopper.pipeline.derived.tag_keys import has_tag_keys
from rockhopper.pipeline.jobs.options import StoreOptions
from rockhopper.pipeline.store_source.directory import StoreDirectory
from rockhopper.pipeline.store_source.pieces import FilePiece
from rockhopper.pipeline.store_source.rules import StoreReadRules
from rockhopper.pipeline.store_source.splits import plan


def plan_dispatch(
    asked: StoreOptions, root: Path | None, store: StoreDirectory, geometry: Geometry
) -> tuple[DispatchRules, Sequence[tuple[FilePiece, ...]]]:
    """Return the rules, and the pieces of each task. Raises PipelineError."""
    has_tags = asked.index_tags
    rules = read_dispatch_rules(
        root,
        store,
        delay_levels=asked.delay_levels,
        batch_topics=frozenset(asked.batch_topics),
        has_tag_keys=has_tag_keys(root, store, geometry) if has_tags is None else has_tags,
    )
    scan_rules = StoreReadRules(
        asked.path, (), split_size_bytes=asked.split_size, corrupt_records="skip"
    )
    return rules, plan(store, scan_rules, os.cpu_count() or 1)
