"""Send a message that our clients cannot send."""

from rockhopper.client import Producer
from rockhopper.client.sending.outgoing import OutgoingMessage
from rockhopper.protocol.sys_flags import SYS_FLAG_COMPRESSED_ZLIB


async def send_compressed(nameserver: str, topic: str, body: bytes) -> None:
    """Send *body* to queue 0, marked as a zlib stream, whatever it is."""
    async with Producer(nameserver) as producer:
        message = OutgoingMessage(topic, body, "", "", 0, sys_flag=SYS_FLAG_COMPRESSED_ZLIB)
        await producer.sender.send(message, [message], 0)
