"""Tables whose files rot under a running broker: the scrub finds each, and writes it anew."""

import pytest
from structlog.testing import capture_logs

from rockhopper.broker import Broker
from tests.support.raw_peer import until

pytestmark = pytest.mark.usefixtures("real_syncs")


@pytest.mark.parametrize("name", ["topics.json", "subscriptionGroup.json.bak", "kvConfig.json"])
async def test_a_table_that_rots_is_named_counted_and_written_anew(name: str) -> None:
    async with Broker.temporary({"scrubInterval": 10}) as broker:
        assert broker.servers.name_service is not None
        broker.servers.name_service.values.set_value("namespace", "key", "value")
        await broker.servers.name_service.values.saved()
        await broker.tables.saved()
        path = broker.config.store.root / "config" / name
        good = path.read_bytes()
        with capture_logs() as lines:
            path.write_bytes(good.replace(b"e", b"E", 1))
            await until(lambda: path.read_bytes()[:100] == good[:100])
        assert [line["file"] for line in lines if "file was changed" in line["event"]] == [
            str(path)
        ]
        assert broker.tables.altered_count == 1
