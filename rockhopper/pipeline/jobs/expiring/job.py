"""The job ``expire``: remove old messages from an archive, in whole files."""

from collections.abc import Sequence

from rockhopper.pipeline.jobs.archiving.catalog import Catalog
from rockhopper.pipeline.jobs.archiving.manifest import (
    EXPIRED,
    ArchivedFile,
    make_removing_manifest,
)
from rockhopper.pipeline.jobs.expiring.options import ExpireOptions
from rockhopper.pipeline.jobs.expiring.result import ExpiredTopic, ExpireResult
from rockhopper.pipeline.jobs.kept_archives import archive_at, bring_up, check_topics
from rockhopper.pipeline.jobs.options import job
from rockhopper.pipeline.jobs.results import UsageProblem, format_count


@job(ExpireOptions)
def expire(asked: ExpireOptions) -> ExpireResult:
    """Remove the files of *archive* whose messages are all older than *older_than_ms*.

    The next archive run continues at the end of the archive, so it does not fetch the messages
    again. See docs/jobs.md.

    Raises:
        PipelineError: states the problem and the remedy; nothing is removed.
    """
    if not asked.older_than_ms or asked.older_than_ms < 0:
        raise UsageProblem(
            "expire removes what is older than a time that you choose: give --older-than, as 90d"
        )
    catalog = archive_at(asked.archive)
    check_topics(catalog, asked.topics)
    before_ms = asked.now_ms() - asked.older_than_ms
    if asked.dry_run:
        catalog.check_writable()
        result = _result(catalog, _find_old(catalog, asked, before_ms), asked, before_ms)
        result.dry_run = True
        return result
    with catalog.lock():
        current = bring_up(catalog, asked.progress, asked.now_ms())
        found = _find_old(catalog, asked, before_ms)
        result = _result(catalog, found, asked, before_ms)
        if found:
            asked.progress.step(f"removing {format_count(len(found), 'file')}")
            manifest = make_removing_manifest(
                current, EXPIRED, found, asked.keep_old_ms, asked.now_ms()
            )
            catalog.commit(manifest, [])
            catalog.delete_replaced(asked.now_ms())
            catalog.fold()
            result.run = manifest.run
    return result


def _find_old(catalog: Catalog, asked: ExpireOptions, before_ms: int) -> list[ArchivedFile]:
    return [
        file
        for file in catalog.archived_files()
        if file.max_store_ms < before_ms and (not asked.topics or file.topic in asked.topics)
    ]


def _result(
    catalog: Catalog, found: Sequence[ArchivedFile], asked: ExpireOptions, before_ms: int
) -> ExpireResult:
    by_topic: dict[str, list[ArchivedFile]] = {}
    for file in found:
        by_topic.setdefault(file.topic, []).append(file)
    return ExpireResult(
        directory=catalog.files.location,
        before_ms=before_ms,
        topics=[
            ExpiredTopic(
                topic,
                sum(file.rows for file in files),
                len(files),
                sum(file.bytes for file in files),
            )
            for topic, files in sorted(by_topic.items())
        ],
        messages=sum(file.rows for file in found),
        files=len(found),
        bytes=sum(file.bytes for file in found),
        keep_old_ms=asked.keep_old_ms,
    )
