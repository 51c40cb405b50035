"""The same reason is not told again and again."""

from structlog.testing import capture_logs

from rockhopper.broker.replication.engines.consensus.complaints import Complaints


async def test_a_reason_is_told_once_for_each_request() -> None:
    complaints = Complaints()
    with capture_logs() as told:
        complaints.tell("watch", "no answer")
        complaints.tell("watch", "no answer")
        complaints.tell("renew", "no answer")
        complaints.tell("watch", "refused")
    assert [(each["request"], each["reason"]) for each in told] == [
        ("watch", "no answer"),
        ("renew", "no answer"),
        ("watch", "refused"),
    ]
