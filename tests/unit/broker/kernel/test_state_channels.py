"""Channels write for followers while a writer leads, and do nothing otherwise."""

from rockhopper.broker.kernel.state_channels import Channel, StateChannels

KIND = 40


class Writer:
    def __init__(self) -> None:
        self.written: list[tuple[int, bytes, Channel, int]] = []
        self.flush_count = self.confirmed_count = 0

    def write(self, kind: int, payload: bytes, channel: Channel, interval_ms: int) -> None:
        self.written.append((kind, payload, channel, interval_ms))

    def flush(self) -> None:
        self.flush_count += 1

    async def confirmed(self) -> None:
        self.confirmed_count += 1


async def test_nothing_is_replicated_without_a_writer() -> None:
    channel = StateChannels().channel(KIND)
    assert not channel.is_replicated
    channel.note(b"change")
    channel.flush()
    await channel.confirmed()


async def test_a_writer_gets_what_channels_made_before_note() -> None:
    channels, writer = StateChannels(), Writer()
    confirmed = channels.channel(KIND)
    gathered = channels.channel(KIND + 1, Channel.GATHERED, interval_ms=25)
    channels.writer = writer
    assert confirmed.is_replicated
    confirmed.note(b"a")
    gathered.note(b"b")
    confirmed.flush()
    await confirmed.confirmed()
    assert writer.written == [
        (KIND, b"a", Channel.CONFIRMED, 0),
        (KIND + 1, b"b", Channel.GATHERED, 25),
    ]
    assert (writer.flush_count, writer.confirmed_count) == (1, 1)
