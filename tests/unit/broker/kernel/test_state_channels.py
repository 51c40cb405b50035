"""Channels write for followers while a writer leads, and do nothing otherwise."""

from rockhopper.broker.kernel.state_channels import Channel, StateChannels
from tests.support.noting_writer import NotingWriter

KIND = 40


async def test_nothing_is_replicated_without_a_writer() -> None:
    channel = StateChannels().channel(KIND)
    assert not channel.is_replicated
    channel.note(b"change")
    channel.flush()
    await channel.wait_until_confirmed()


async def test_a_writer_gets_what_channels_made_before_note() -> None:
    channels, writer = StateChannels(), NotingWriter()
    confirmed = channels.channel(KIND)
    gathered = channels.channel(KIND + 1, Channel.GATHERED, interval_ms=25)
    channels.writer = writer
    assert confirmed.is_replicated
    confirmed.note(b"a")
    gathered.note(b"b")
    confirmed.flush()
    await confirmed.wait_until_confirmed()
    assert writer.written == [
        (KIND, b"a", Channel.CONFIRMED, 0),
        (KIND + 1, b"b", Channel.GATHERED, 25),
    ]
    assert (writer.flush_count, writer.confirmed_count) == (1, 1)


def test_what_is_not_awaited_ends_with_the_writing() -> None:
    channels, writer = StateChannels(), NotingWriter()
    confirmed = channels.channel(KIND)
    staged = channels.channel(KIND + 1, Channel.STAGED)
    gathered = channels.channel(KIND + 2, Channel.GATHERED)
    assert not gathered.gather()
    channels.writer = writer
    assert gathered.gather()
    assert (staged.is_replicated, writer.intervals_ms) == (True, [0])
    writer.is_writing = False
    assert not gathered.gather()
    assert (confirmed.is_replicated, staged.is_replicated) == (True, False)
    assert writer.intervals_ms == [0]


def test_who_leads_is_known_to_the_writer() -> None:
    channels, writer = StateChannels(), NotingWriter()
    assert channels.leads_alone
    channels.writer = writer
    writer.leads_alone = False
    assert not channels.leads_alone
