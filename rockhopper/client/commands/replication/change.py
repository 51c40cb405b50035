"""`rockhopper ha switch|reseed|forget|elect --unclean`: an operator changes a set."""

import json

from rockhopper.client.commands.output import write_line
from rockhopper.protocol.codes import RequestCode

TIMEOUT_S = 30.0


async def change(address: str, action: str, replica_id: int | None = None) -> None:
    """Ask the replica at *address*, and show what it says.

    Raises:
        RequestRefusedError: it does not do so; the sentence says why.
    """
    from rockhopper.client.admin.admin import Admin

    ext = {"action": action} | ({"id": str(replica_id)} if replica_id is not None else {})
    async with Admin() as admin:
        answer = await admin.request(
            address, RequestCode.CHANGE_REPLICA_SET, ext, timeout_s=TIMEOUT_S
        )
    write_line(json.loads(answer.body)["said"])
