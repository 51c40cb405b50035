"""The commands that write: rebuild, repair, backup, restore. They write only with --write."""

import json
import os
import sys
import time
from pathlib import Path

import click

from rockhopper.broker.store.files import disk
from rockhopper.broker.store.files.errors import StoreError
from rockhopper.broker.tools.checking import check
from rockhopper.broker.tools.commands import (
    TimeOrMs,
    config_option,
    directory,
    fail,
    in_words,
    json_option,
    say_state,
    store,
)
from rockhopper.broker.tools.findings import REBUILD, Findings
from rockhopper.broker.tools.output import (
    flush,
    format_count,
    size_text,
    time_text,
    write_json,
    write_line,
    write_table,
)
from rockhopper.broker.tools.progress import Bar
from rockhopper.broker.tools.repair.backing_up import Backup, BackupPlan, damage_from
from rockhopper.broker.tools.repair.choosing import (
    Last,
    RestorePoints,
    choose,
    last_of,
    missing_of,
    segments_of,
)
from rockhopper.broker.tools.repair.copying import check_empty
from rockhopper.broker.tools.repair.rebuilding import rebuild, refuse_unfit_log
from rockhopper.broker.tools.repair.repairing import Repair, check_target, repair, survey
from rockhopper.broker.tools.repair.repairing import compute_needed_bytes as repaired_bytes
from rockhopper.broker.tools.repair.restoring import compute_needed_bytes as restored_bytes
from rockhopper.broker.tools.repair.restoring import restore
from rockhopper.broker.tools.repair.room import room, shortage
from rockhopper.broker.tools.store_view import StoreView, load_config

__all__ = ["store"]

_NAMED_MAX = 20
_BACKUP_GOES_ON = "The points so far are complete: free some space and run this again to continue"
_NOTHING = "Nothing was written: add --write to do it"

write_option = click.option(
    "--write", is_flag=True, help="Write; without it, only show what would be written."
)


@store.command("rebuild")
@directory
@config_option
@write_option
@json_option
@in_words
def rebuild_command(root: Path, config_path: Path | None, *, write: bool, as_json: bool) -> None:
    """Rebuild consume queues and index from the log of a stopped store.

    Without --write, report what is wrong with the present ones.
    """
    view = StoreView(root, config_path)
    if view.holder is not None:
        holder = f"process {view.holder}" if view.holder else "another process"
        raise StoreError(f"the store in {root} is in use by {holder}: stop that broker first")
    refuse_unfit_log(view)
    if not as_json:
        say_state(view)
    findings = Findings(root)
    if not write:
        with Bar("Comparing", view.log.min_offset, view.log_end()) as bar:
            checked = check(view, findings, bar.set_position)
        wrong = {kind: findings.counts[kind] for kind in ("queue", "index")}
        files = [each for each in findings.damages if each.kind == "file"]
        wrong["queue"] += sum(each.remedy == REBUILD for each in files)
        if as_json:
            write_json({"written": False, "records": checked.record_count, "wrong": wrong})
            return
        write_line(
            f"Would rebuild at most {format_count(checked.unit_count, 'queue unit')} and "
            f"{format_count(checked.key_count, 'index entry')} from "
            f"{format_count(checked.record_count, 'record')}; at present {wrong['queue']:,} places "
            f"in queues and {wrong['index']:,} in the index are wrong"
        )
        write_line(_NOTHING)
        return
    report = rebuild(view)
    units = sum(report.changed_queues.values())
    if as_json:
        write_json(
            {
                "written": True,
                "records": report.record_count,
                "queues": len(report.changed_queues),
                "units": units,
                "keys": report.indexed_count,
                "damagedRanges": len(report.holes),
            }
        )
    else:
        write_line(
            f"Made {format_count(units, 'queue unit')} in "
            f"{format_count(len(report.changed_queues), 'queue')} and "
            f"{format_count(report.indexed_count, 'index entry')} from "
            f"{format_count(report.record_count, 'record')}"
        )
        _warn_of_damage(len(report.holes), root)
    _end_incomplete(report.holes)


def _say_nothing_is_written(target: Path, need_bytes: int, freed: Path | None = None) -> None:
    if missing := shortage(target, need_bytes, freed=freed):
        write_line(f"There is not enough space: {missing}")
    write_line(_NOTHING)


def _warn_of_damage(hole_count: int, root: Path) -> None:
    if hole_count:
        write_line(
            f"The log is damaged in {format_count(hole_count, 'place')}, and the messages there "
            f"cannot be read: 'store check {root}' lists them"
        )


@store.command("repair")
@directory
@click.option(
    "--into", required=True, metavar="NEW", type=click.Path(path_type=Path), help="The new store."
)
@click.option(
    "--report", type=click.Path(path_type=Path), help="Write what was lost to this file, as JSON."
)
@config_option
@write_option
@json_option
@in_words
def repair_command(
    root: Path,
    config_path: Path | None,
    *,
    into: Path,
    report: Path | None,
    write: bool,
    as_json: bool,
) -> None:
    """Make a new store with every intact record of a damaged one, and report what is lost.

    Nothing in DIR is changed. Messages keep their offsets and their ids.
    """
    view = StoreView(root, config_path)
    check_target(root, into)
    if report is not None and not _can_be_written(report):
        raise StoreError(f"{report} cannot be written: name a file in an existing directory")
    if not as_json:
        say_state(view)
    with Bar("Reading", view.log.min_offset, view.log_end()) as bar:
        found = survey(view, bar.set_position)
    if write:
        with Bar("Copying", found.log_start, found.log_end) as bar:
            repair(view, found, into, bar.set_position)
    if write and report is not None:
        data = json.dumps(found.json(), indent=2).encode() + b"\n"
        with room(report.parent, len(data), "No report was written"):
            disk.write_atomically(report, data)
    if as_json:
        write_json({"written": write, **found.json()})
        return
    _write_repair(found, report if write else None)
    if not write:
        _say_nothing_is_written(into, repaired_bytes(view), freed=into)
        return
    write_line(f"Made the store {into}")


def _can_be_written(path: Path) -> bool:
    parent = path.parent
    return parent.is_dir() and os.access(parent, os.W_OK) and not path.is_dir()


def _write_repair(found: Repair, report: Path | None) -> None:
    for lost in found.lost[:_NAMED_MAX]:
        write_line(lost.line())
    if len(found.lost) > _NAMED_MAX:
        rest = f"all are in {report}" if report else "--report FILE or --json has all"
        write_line(f"… and {len(found.lost) - _NAMED_MAX:,} more: {rest}")
    lost_bytes = sum(lost.size for lost in found.lost)
    write_line(
        f"{format_count(found.record_count, 'sound record')}; lost: "
        f"{format_count(len(found.lost), 'place')} with {size_text(lost_bytes)}"
    )
    _warn_of_left_out(found.left_out)


@store.command("backup")
@directory
@click.argument("target", metavar="TARGET", type=click.Path(path_type=Path))
@click.option(
    "--prune", is_flag=True, help="Delete files from TARGET that the store no longer has."
)
@click.option("--verify", is_flag=True, help="Read all of TARGET and check its CRCs.")
@click.option(
    "--incomplete", is_flag=True, help="Copy the log even if files are missing or damaged."
)
@config_option
@write_option
@json_option
@in_words
def backup_command(
    root: Path,
    target: Path,
    config_path: Path | None,
    *,
    prune: bool,
    verify: bool,
    incomplete: bool,
    write: bool,
    as_json: bool,
) -> None:
    """Copy a store, stopped or in use, to TARGET; later runs copy only changes.

    Each run adds a point that 'restore' can restore. It contains every message that was
    acknowledged before the run began.
    """
    view = StoreView(root, config_path)
    _refuse_odd_log(view, is_forced=incomplete)
    backup = Backup(target)
    plan = backup.plan(view)
    if not as_json:
        say_state(view)
    value: dict[str, object] = {"written": write, "newBytes": plan.new_bytes}
    damaged = 0
    if not write:
        text = f"Would copy {size_text(plan.new_bytes)} of log, up to offset {plan.log_end}"
    else:
        text, damaged = _back_up(view, backup, plan, value, prune=prune)
    if plan.differs_at is not None:
        value["differsAt"] = plan.differs_at
        text += f". {_explain_new_line(plan)}; the earlier points are unchanged"
    wrong = _verify(backup) if verify else None
    lost = plan.lost_tables
    value["unreadableTables"] = lost
    if as_json:
        write_json(value | ({} if wrong is None else {"wrong": wrong}))
    else:
        write_line(text)
        _warn_of_damage(damaged, root)
        _warn_of_tables(plan)
        _say_verified(wrong)
        if not write:
            _say_nothing_is_written(target, plan.new_bytes)
    flush()
    if wrong:
        fail(f"{target} is damaged: start a new backup in another directory")
    _end_incomplete(lost or damaged)


def _back_up(
    view: StoreView, backup: Backup, plan: BackupPlan, value: dict[str, object], *, prune: bool
) -> tuple[str, int]:
    """Add a point, and add its numbers to *value*.

    Returns a summary for the user, and the number of damaged ranges.
    """
    now_ms = time.time_ns() // 1_000_000
    bar = Bar("Copying", plan.log_end - plan.new_bytes, plan.log_end)
    with room(backup.directory, plan.new_bytes, _BACKUP_GOES_ON), bar:
        point, pruned = backup.run_locked(view, now_ms, bar.set_position, prune=prune)
    with Bar("Reading"):
        damaged = damage_from(view, plan.new_from) if plan.new_bytes else 0
    value |= {"point": point.number, "logEnd": point.log_end, "pruned": pruned}
    value["damagedRanges"] = damaged
    text = (
        f"Point {point.number}: {size_text(plan.new_bytes)} of log copied, up to offset "
        f"{point.log_end}, and {format_count(len(point.tables), 'table')}"
    )
    if prune:
        text += f"; {format_count(pruned, 'old file')} deleted"
    return text, damaged


def _say_verified(wrong: list[str] | None) -> None:
    for line in wrong or ():
        write_line(line)
    if wrong == []:
        write_line("The backup is intact")


def _warn_of_tables(plan: BackupPlan) -> None:
    for name, copy in plan.unreadable.items():
        taken = (
            "nor can its copy: restore continues without it" if copy is None else "its copy is used"
        )
        write_line(f"{name} cannot be read, {taken}")


def _refuse_odd_log(view: StoreView, *, is_forced: bool) -> None:
    odd = [
        *(f"{each.path}: {each.reason}" for each in view.problems if each.is_refused),
        *(f"{view.layout.commit_log}: {_missing_text(each)}" for each in view.missing),
    ]
    if odd and not is_forced:
        raise StoreError(
            f"{'; '.join(odd)}. Run 'store repair' and back up the store that it writes, or "
            "copy the rest with --incomplete"
        )


def _missing_text(missing: tuple[int, int]) -> str:
    return f"the log from {missing[0]} to {missing[1]} is missing"


def _explain_new_line(plan: BackupPlan) -> str:
    if plan.is_gap:
        return (
            f"The log before offset {plan.differs_at} expired before it was copied: a new line "
            "of points starts after it"
        )
    return (
        f"The log from offset {plan.differs_at} on differs from the earlier copy (did a crash "
        "cut off its end, or was the store restored?): it is copied again, and a new line of "
        "points starts"
    )


def _verify(backup: Backup) -> list[str]:
    total = sum(segment.size for segment in backup.manifest.segments)
    with Bar("Verifying", 0, total) as bar:
        return backup.verify(bar.set_position)


@store.command("restore")
@click.argument("target", metavar="TARGET", type=click.Path(path_type=Path))
@click.argument("root", metavar="DIR", type=click.Path(path_type=Path, readable=False))
@click.option(
    "--to", "before_ms", type=TimeOrMs(), help="Restore only what was stored before this time."
)
@click.option(
    "--point", "number", type=click.IntRange(1), help="Restore this point instead of the newest."
)
@config_option
@write_option
@json_option
@in_words
def restore_command(
    target: Path,
    root: Path,
    config_path: Path | None,
    *,
    before_ms: int | None,
    number: int | None,
    write: bool,
    as_json: bool,
) -> None:
    """Make a store in DIR, which must be empty, from the backup in TARGET.

    Without --write, list the points in the backup.
    """
    backup = Backup(target)
    if backup.is_new:
        raise StoreError(f"there is no backup in {target}: name the directory of a backup")
    choice = choose(backup, number, before_ms)
    point = choice.log
    check_empty(root)
    last = last_of(backup, choice)
    missing = missing_of(backup, point)
    if not write:
        _write_points(backup, choice, last, root, as_json=as_json)
        return
    config, _ = load_config(root, config_path)
    segments = segments_of(backup, point)
    with Bar("Copying", segments[0].base if segments else 0, point.log_end) as bar:
        restored = restore(backup, choice, root, config, bar.set_position)
    if as_json:
        write_json(
            {
                "written": True,
                "point": point.number,
                "tablesOfPoint": choice.tables.number,
                "lastTime": last.store_time_ms,
                "logStart": restored.log_start,
                "logEnd": restored.log_end,
                "records": restored.record_count,
                "damagedRanges": restored.hole_count,
                "missing": missing,
                "tablesLeftOut": restored.left_out,
            }
        )
        _end_incomplete(missing or restored.left_out or restored.hole_count)
        return
    write_line(
        f"Restored {format_count(restored.record_count, 'record')} to {root}, offsets "
        f"{restored.log_start} to {restored.log_end}, from {_describe(choice, last)}"
    )
    _warn_of_damage(restored.hole_count, root)
    _warn_of_the_end(backup, choice)
    _warn_of_missing(missing)
    _warn_of_left_out(restored.left_out)
    _end_incomplete(missing or restored.left_out or restored.hole_count)


def _warn_of_left_out(tables: list[str]) -> None:
    for name in tables:
        write_line(f"Left out: {name}, because neither it nor its copy can be read")


def _warn_of_missing(missing: list[tuple[int, int]]) -> None:
    for each in missing:
        write_line(f"Not in the backup: {_missing_text(each)}")


def _end_incomplete(missing: object) -> None:
    if missing:
        flush()
        sys.exit(1)


def _describe(choice: RestorePoints, last: Last) -> str:
    text = f"point {choice.log.number}"
    if choice.tables.number != choice.log.number:
        text += f" with the tables of point {choice.tables.number}"
    return f"{text}, up to the message of {time_text(last.store_time_ms)}"


def _warn_of_the_end(backup: Backup, choice: RestorePoints) -> None:
    newest = backup.manifest.points[-1]
    if choice.before_ms is not None and choice.before_ms > choice.log.time_ms:
        write_line(
            f"The backup ends before that time: point {choice.log.number} was made at "
            f"{time_text(choice.log.time_ms)}, and nothing that was stored later is in it"
        )
    if choice.log.line != newest.line:
        write_line(
            f"The newest points, up to {newest.number}, belong to another line: the log was "
            "cut off or the store restored since. --point restores one of them"
        )


def _write_points(
    backup: Backup, choice: RestorePoints, last: Last, root: Path, *, as_json: bool
) -> None:
    rows = [
        (point, segments_of(backup, point)[0].base if segments_of(backup, point) else 0)
        for point in backup.manifest.points
    ]
    if as_json:
        points = [
            {
                "point": point.number,
                "line": point.line,
                "time": point.time_ms,
                "logStart": start,
                "logEnd": point.log_end,
                "lastTime": point.last_store_time_ms,
            }
            for point, start in rows
        ]
        chosen = {
            "chosen": choice.log.number,
            "tablesOfPoint": choice.tables.number,
            "logEnd": last.log_end,
            "lastTime": last.store_time_ms,
        }
        write_json({"written": False, **chosen, "points": points})
        return
    write_line(f"Backup {backup.directory} of {backup.manifest.source}")
    write_table(
        ("POINT", "LINE", "LOG FROM", "UP TO", "MADE", "LAST MESSAGE"),
        [
            (
                point.number,
                point.line,
                start,
                point.log_end,
                time_text(point.time_ms),
                time_text(point.last_store_time_ms),
            )
            for point, start in rows
        ],
    )
    write_line(f"Would restore {_describe(choice, last)}")
    _warn_of_missing(missing_of(backup, choice.log))
    _warn_of_the_end(backup, choice)
    _say_nothing_is_written(root, restored_bytes(backup, choice), freed=root)
