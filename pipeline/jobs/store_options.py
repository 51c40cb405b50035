"""Options of jobs that compare or make index files and queues."""

from collections.abc import Callable
from typing import Any, TypeVar

import click

_Command = TypeVar("_Command", bound=Callable[..., Any])


def index_options(command: _Command) -> _Command:
    """Add --index-slots, --index-entries, --index-tags, --batch-topic.

    The command gets ``index_slots``, ``index_entries``, ``index_tags`` and ``batch_topics``.
    """
    for add in (
        click.option(
            "--batch-topic",
            "batch_topics",
            multiple=True,
            metavar="TOPIC",
            help="A topic of type BatchCQ, if the store's configuration is not there; repeatable.",
        ),
        click.option(
            "--index-tags/--no-index-tags",
            default=None,
            help="Whether tags are in the index, as in RocketMQ from 5.4 on; else as is found.",
        ),
        click.option(
            "--index-entries", type=click.IntRange(2), metavar="N", help="maxIndexNum, likewise."
        ),
        click.option(
            "--index-slots",
            type=click.IntRange(1),
            metavar="N",
            help="maxHashSlotNum of the broker, if the index files do not tell it.",
        ),
    ):
        command = add(command)
    return command
