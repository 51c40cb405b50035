"""`rockhopper dlq`: shows dead letters and sends them back."""

from collections import Counter
from contextlib import aclosing
from typing import TYPE_CHECKING, Any

import click

from rockhopper.client.commands.output import (
    flush,
    format_count,
    format_time,
    message_json,
    print_table,
    read_body,
    write_json,
    write_line,
    write_note,
)
from rockhopper.client.commands.parameters import GROUP, TOPIC
from rockhopper.client.commands.running import (
    Failure,
    choose_nameserver,
    confirm,
    nameserver_option,
    report,
    run,
)
from rockhopper.client.commands.screen.family import AliasedGroup
from rockhopper.client.commands.screen.watching import run_shown, watch_options
from rockhopper.client.commands.shell.completion import complete_dead_groups
from rockhopper.client.commands.shell.reachable_brokers import list_reachable
from rockhopper.client.printable import format_preview, make_printable
from rockhopper.protocol.names import dlq_topic

if TYPE_CHECKING:
    from rockhopper.client.admin.dead_letters import DeadLetter, Requeued

_REASONS_MAX = 5


@click.group(cls=AliasedGroup)
def dlq() -> None:
    """List and show dead letters, and send them back.

    A message that a group fails to handle too often ends in the topic %DLQ%GROUP.
    """


@dlq.command("list")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object per group.")
@watch_options
@nameserver_option
def list_groups(as_json: bool) -> None:
    """List the groups that have dead letters."""
    names = choose_nameserver()
    run_shown(lambda: _list(as_json, names))


async def _list(as_json: bool, nameserver: str | None) -> None:
    async with list_reachable(nameserver) as admin:
        counts = await admin.dead_letters.counts()
        if not counts:
            await admin.masters()  # raises the more precise error that there is no broker
    if as_json:
        for each in counts:
            write_json(
                {
                    "group": each.group,
                    "count": each.count,
                    "waiting": each.waiting,
                    "oldestStoreTime": each.oldest_time_ms,
                }
            )
    elif counts:
        rows = [
            (each.group, each.count, each.count - each.waiting, format_time(each.oldest_time_ms))
            for each in counts
        ]
        print_table(("GROUP", "DEAD LETTERS", "REQUEUED", "OLDEST"), rows)
    else:
        write_note("no group has dead letters")


@dlq.command()
@click.argument("group", type=GROUP, shell_complete=complete_dead_groups)
@click.option(
    "--max", "max_count", type=click.IntRange(min=1), metavar="N", help="Stop after N messages."
)
@click.option(
    "--waiting", "only_waiting", is_flag=True, help="Only dead letters that were not requeued."
)
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object per message.")
@nameserver_option
def show(group: str, max_count: int | None, only_waiting: bool, as_json: bool) -> None:
    """Show the dead letters of GROUP, oldest first."""
    run(_show(group, max_count, only_waiting, as_json, choose_nameserver()))


async def _show(
    group: str, max_count: int | None, only_waiting: bool, as_json: bool, nameserver: str | None
) -> None:
    rows: list[tuple[object, ...]] = []
    count = 0
    async with list_reachable(nameserver, topic=dlq_topic(group)) as admin:
        async with aclosing(admin.dead_letters.read(group, only_waiting=only_waiting)) as letters:
            async for letter in letters:
                count += 1
                if as_json:
                    write_json(_letter_json(letter))
                else:
                    rows.append(_row(letter))
                if count == max_count:
                    break
    if rows:
        print_table(
            ("ID", "TOPIC", "DELIVERED", "SENT", "GIVEN UP", "REQUEUED", "BODY"),
            rows,
        )
    elif not as_json:
        write_note(f"the group {group} has no such dead letters")


def _row(letter: "DeadLetter") -> tuple[object, ...]:
    message = letter.message
    body, problem = read_body(message)
    return (
        message.message_id,
        letter.topic or "-",
        _tries(letter),
        format_time(message.born_time_ms),
        format_time(message.store_time_ms),
        "yes" if letter.is_requeued else "no",
        format_preview(body) if problem is None else f"<{problem}>",
    )


def _tries(letter: "DeadLetter") -> str:
    """Return how often the message was delivered, in words."""
    tries = max(letter.message.reconsume_times, 1)
    return "once" if tries == 1 else f"{tries:,} times"


def _letter_json(letter: "DeadLetter") -> dict[str, Any]:
    return {
        **message_json(letter.message),
        "originTopic": letter.topic,
        "delivered": max(letter.message.reconsume_times, 1),
        "requeued": letter.is_requeued,
    }


@dlq.command()
@click.argument("group", type=GROUP, shell_complete=complete_dead_groups)
@click.option(
    "--max", "max_count", type=click.IntRange(min=1), metavar="N", help="Stop after N messages."
)
@click.option(
    "--to",
    type=TOPIC,
    metavar="TOPIC",
    help="Send them to this topic instead; %RETRY%GROUP redelivers to GROUP only.",
)
@click.option(
    "--message-id", metavar="ID", help="Only this dead letter, with the id that `dlq show` prints."
)
@click.option("--dry-run", is_flag=True, help="Show what would be sent.")
@click.option("--yes", "-y", is_flag=True, help="Do not ask for confirmation.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object per message.")
@nameserver_option
def requeue(
    group: str,
    max_count: int | None,
    to: str | None,
    message_id: str | None,
    dry_run: bool,
    yes: bool,
    as_json: bool,
) -> None:
    """Send the dead letters of GROUP back to the topics that they came from.

    Their retries start again at 0, and every group that reads the topic receives them. Messages
    that were sent back before are skipped; a message counts as sent only once a broker has stored
    it. A message that cannot be sent stays and is reported; the others are sent.
    """
    run(_requeue(group, max_count, to, message_id, dry_run, yes, as_json, choose_nameserver()))


async def _requeue(
    group: str,
    max_count: int | None,
    to: str | None,
    message_id: str | None,
    dry_run: bool,
    yes: bool,
    as_json: bool,
    nameserver: str | None,
) -> None:
    outcome = _Outcome(dry_run)
    async with list_reachable(nameserver, topic=dlq_topic(group)) as admin:
        if not dry_run and not yes:
            waiting = (await admin.dead_letters.count(group)).waiting
            _confirm_requeue(group, waiting, max_count, to, message_id)
        requeues = admin.dead_letters.requeue(
            group, max_count=max_count, to=to, message_id=message_id, go_on=True, dry_run=dry_run
        )
        try:
            async with aclosing(requeues):
                async for requeued in requeues:
                    outcome.count(requeued)
                    if as_json:
                        write_json(_requeued_json(requeued, dry_run=dry_run))
                        flush()
        except BaseException:
            if outcome.sent and not dry_run:
                report(f"{_format_requeued_count(outcome.sent.total())} sent back before the error")
            raise
    if not as_json:
        outcome.print(group)
    outcome.raise_failure()


def _confirm_requeue(
    group: str, waiting: int, max_count: int | None, to: str | None, message_id: str | None
) -> None:
    count = 1 if message_id is not None else min(waiting, max_count or waiting)
    if count:
        where = to or "their original topics"
        confirm(f"Send {format_count(count, 'dead letter')} of {group} to {where}?", False)


class _Outcome:
    """Counts the dead letters of a requeue by what became of them."""

    def __init__(self, dry_run: bool) -> None:
        self._dry_run = dry_run
        self.sent: Counter[str] = Counter()
        self._stayed: Counter[str] = Counter()
        self._repeated = 0

    def count(self, requeued: "Requeued") -> None:
        if requeued.problem is not None:
            self._stayed[str(requeued.problem)] += 1
        elif requeued.receipt is None and not self._dry_run:
            self._repeated += 1
        else:
            self.sent[requeued.target] += 1

    def print(self, group: str) -> None:
        for topic, count in sorted(self.sent.items()):
            verb = "would be" if self._dry_run else "were" if count > 1 else "was"
            letters = format_count(count, "dead letter")
            write_line(
                f"{letters} of {make_printable(group)} {verb} sent to {make_printable(topic)}"
            )
        if self._repeated:
            write_line(
                f"{self._repeated:,} had been sent by a requeue that was interrupted, or on their "
                "own"
            )
        if not self.sent and not self._repeated and not self._stayed:
            write_note(f"group {group} has no dead letters left to send back")

    def raise_failure(self) -> None:
        """Raise Failure with the most frequent reasons, if dead letters stayed."""
        if not self._stayed:
            return
        verb = "would stay" if self._dry_run else "stayed"
        reasons = self._stayed.most_common(_REASONS_MAX)  # each dead letter may have its own
        rest = self._stayed.total() - sum(count for _, count in reasons)
        if rest:
            reasons.append(("--json shows the reason of each", rest))
        lines = [f"{format_count(count, 'dead letter')} {verb}: {why}" for why, count in reasons]
        raise Failure("\n".join(lines))


def _format_requeued_count(count: int) -> str:
    return "1 dead letter was" if count == 1 else f"{count:,} dead letters were"


def _requeued_json(requeued: "Requeued", *, dry_run: bool) -> dict[str, Any]:
    message = requeued.letter.message
    receipt = requeued.receipt
    value: dict[str, Any] = {
        "messageId": message.message_id,
        "fromQueue": message.queue.queue_id,
        "fromOffset": message.queue_offset,
        "topic": requeued.target,
        "sent": receipt is not None,
        "dryRun": dry_run,
    }
    if requeued.problem is not None:
        value["problem"] = str(requeued.problem)
    if receipt is not None:
        value["broker"] = receipt.queue.broker_name
        value["queue"] = receipt.queue.queue_id
        value["offset"] = receipt.queue_offset
    return value
