"""The job ``compact``: merge the small files of an archive."""

import time
from dataclasses import replace

from rockhopper.pipeline.jobs.archiving.catalog import Catalog
from rockhopper.pipeline.jobs.archiving.manifest import (
    COMPACTED,
    Manifest,
    make_removing_manifest,
    merge_summaries,
)
from rockhopper.pipeline.jobs.archiving.values import ValueFormat
from rockhopper.pipeline.jobs.archiving.writing import WriteTarget, WrittenSplit
from rockhopper.pipeline.jobs.compacting.options import CompactOptions
from rockhopper.pipeline.jobs.compacting.planning import Group, groups
from rockhopper.pipeline.jobs.compacting.result import CompactResult, MergedTopic
from rockhopper.pipeline.jobs.compacting.work import CompactWork
from rockhopper.pipeline.jobs.kept_archives import archive_at, bring_up, check_topics
from rockhopper.pipeline.jobs.options import job
from rockhopper.pipeline.jobs.results import format_count
from rockhopper.pipeline.jobs.tasks import runner


@job(CompactOptions)
def compact(asked: CompactOptions) -> CompactResult:
    """Merge the small files of a topic and day in *archive* into few large ones.

    Messages do not change, and are sorted by queue and offset. Merged files are kept aside for
    *keep_old_ms*. See docs/jobs.md.

    Raises:
        PipelineError: states the problem and the remedy; the archive is unchanged.
    """
    started = time.monotonic()
    catalog = archive_at(asked.archive)
    check_topics(catalog, asked.topics)
    if asked.dry_run:
        catalog.check_writable()
        found = _plan(catalog, asked)
        result = _result(catalog, found)
        result.dry_run = True
    else:
        with catalog.lock():
            result = _run(catalog, asked)
    result.seconds = round(time.monotonic() - started, 3)
    return result


def _plan(catalog: Catalog, asked: CompactOptions) -> list[Group]:
    return groups(catalog.archived_files(), asked.target_size_bytes, asked.topics)


def _run(catalog: Catalog, asked: CompactOptions) -> CompactResult:
    current = bring_up(catalog, asked.progress, asked.now_ms())
    found = _plan(catalog, asked)
    result = _result(catalog, found)
    if not found:
        return result
    run = current.run + 1
    value = None
    if current.value is not None:
        value = ValueFormat(current.value["format"], current.value["schema"])
    target = WriteTarget(catalog.files.location, catalog.create_staging(run), run, value)
    run_tasks = asked.run or runner("compact", asked, size_bytes=result.bytes_before)
    label = f"merging {format_count(result.files_before, 'file')} of {catalog.files.location}"
    written = run_tasks(list(enumerate(found)), CompactWork(target), label)
    manifest = _manifest(current, found, written, asked)
    asked.progress.step(f"committing {format_count(len(manifest.files), 'file')}")
    catalog.commit(manifest, [name for each in written for name in each.staged])
    catalog.delete_replaced(asked.now_ms())
    result.run = run
    result.files_after = len(manifest.files)
    result.bytes_after = sum(file.bytes for file in manifest.files)
    return result


def _manifest(
    current: Manifest, found: list[Group], written: list[WrittenSplit], asked: CompactOptions
) -> Manifest:
    removed = [file for group in found for file in group]
    manifest = make_removing_manifest(
        current, COMPACTED, removed, asked.keep_old_ms, asked.now_ms()
    )
    files = tuple(file for each in written for file in each.files)
    queues = merge_summaries([queue for file in files for queue in file.queues])
    return replace(manifest, files=files, queues=queues)


def _result(catalog: Catalog, found: list[Group]) -> CompactResult:
    by_topic: dict[str, list[Group]] = {}
    for group in found:
        by_topic.setdefault(group[0].topic, []).append(group)
    topics = [
        MergedTopic(
            topic,
            sum(map(len, of_topic)),
            len(of_topic),
            sum(file.bytes for group in of_topic for file in group),
        )
        for topic, of_topic in by_topic.items()
    ]
    return CompactResult(
        directory=catalog.files.location,
        topics=topics,
        files_before=sum(each.files_before for each in topics),
        files_after=len(found),
        rows=sum(file.rows for group in found for file in group),
        bytes_before=sum(each.bytes_before for each in topics),
    )
