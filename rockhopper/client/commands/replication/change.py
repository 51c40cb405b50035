"""`rockhopper ha switch|reseed|forget|elect --unclean`: changes a replica set."""

import json

from rockhopper.client.commands.output import write_line
from rockhopper.protocol.codes import RequestCode

TIMEOUT_S = 30.0


async def change(address: str, action: str, replica_id: int | None = None) -> None:
    """Send the action to the replica at *address*, and print its answer.

    Raises:
        RequestRefusedError: the replica refuses; the text gives the reason.
    """
    from rockhopper.client.admin.admin import Admin

    ext = {"action": action} | ({"id": str(replica_id)} if replica_id is not None else {})
    async with Admin() as admin:
        answer = await admin.request(
            address, RequestCode.CHANGE_REPLICA_SET, ext, timeout_s=TIMEOUT_S
        )
    write_line(json.loads(answer.body)["said"])
