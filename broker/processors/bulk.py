"""BULK_PULL (70001): reading a queue by the megabyte, for jobs that decode many messages at once.

The checks are those of a pull that carries its own filter, but nothing is parked: an answer comes
at once. Unlike an ordinary pull's it is not limited to 32 messages or 256 KiB.
"""

from dataclasses import dataclass

from rockhopper.broker.access.errors import InvalidParameter, TopicNotFound
from rockhopper.broker.observing.stats import BrokerStats
from rockhopper.broker.processors.pulls import pull_response
from rockhopper.broker.pulling.puller import Outcome, Pull, Puller, outcome_of
from rockhopper.broker.remoting.dispatcher import Request, Response
from rockhopper.broker.store.message_store import MessageStore
from rockhopper.broker.store.reading.get_result import GetStatus
from rockhopper.broker.tables.topic_ids import TopicIds
from rockhopper.protocol.names import TOOLS_CONSUMER_GROUP
from rockhopper.protocol.requests.extensions import BulkPullRequest

SIZE_BYTES_MAX = 8 << 20
COUNT_MAX = 16_384
FLAG_SUBSCRIPTION = 4


@dataclass(eq=False, repr=False)
class BulkPullProcessor:
    """Serves bulk pulls."""

    _store: MessageStore
    _topic_ids: TopicIds
    _stats: BrokerStats
    _puller: Puller

    def process(self, request: Request) -> Response:
        """Return up to ``maxBytes`` of records from ``offset`` on, those before ``endOffset``."""
        fields = request.fields(BulkPullRequest)
        if fields.max_bytes <= 0:
            raise InvalidParameter(f"maxBytes is {fields.max_bytes}; 4194304 is usual")
        group = fields.consumer_group or TOOLS_CONSUMER_GROUP
        count_max = COUNT_MAX
        if fields.end_offset >= 0:
            count_max = min(count_max, fields.end_offset - fields.offset)
            if count_max <= 0:
                raise InvalidParameter(
                    f"nothing lies between offset {fields.offset} and endOffset {fields.end_offset}"
                )
        topic_id = fields.topic_id
        if topic_id and topic_id != self._topic_ids.known(fields.topic):
            raise TopicNotFound(
                f"the topic {fields.topic[:200]} with the id {topic_id[:40]} is not there: it was "
                "deleted, and perhaps made anew"
            )
        pull = Pull(
            request.connection,
            False,
            group,
            fields.topic,
            fields.queue_id,
            fields.offset,
            count_max,
            FLAG_SUBSCRIPTION,
            0,
            0,
            fields.expression,
            fields.expression_type,
            0,
            lambda _outcome, _result: None,
        )
        subscription = self._puller.check(pull)
        store = self._store
        if subscription is None:
            size_max = min(fields.max_bytes, SIZE_BYTES_MAX)
            result = store.get_bulk(
                fields.topic, fields.queue_id, fields.offset, count_max, size_max
            )
        else:
            result = store.get_message(
                fields.topic, fields.queue_id, fields.offset, count_max, subscription
            )
        if result.status is GetStatus.FOUND:
            self._stats.get_found += 1
            self._stats.got(fields.topic, group).add(result.count, len(result.body))
            return pull_response(Outcome.FOUND, result)
        self._stats.get_missed += 1
        return pull_response(outcome_of(result.status, fields.offset), result)
