"""The condition of a search: a mask over a batch, and byte strings that records must contain."""

from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from rockhopper.pipeline.errors import PipelineError
from rockhopper.pipeline.where import parse_where
from rockhopper.protocol.errors import SqlSyntaxError
from rockhopper.protocol.sql92 import compile_filter


@dataclass(frozen=True, slots=True)
class Condition:
    """Conditions that must all hold; Spark sends it to the workers."""

    key: str | None = None
    """One of the message's keys, or its unique key."""
    tag: str | None = None
    contains: bytes | None = None
    """A part of the body, after decompression."""
    sql92: str | None = None
    """An expression over properties, as in consumer subscriptions."""
    topics: tuple[str, ...] = ()
    start_ms: int | None = None
    end_ms: int | None = None
    """Exclusive."""
    where: str | None = None
    """A condition in Spark's SQL over the columns that ``where.parse_where`` can parse."""

    @property
    def needles(self) -> tuple[bytes, ...]:
        """Byte strings that an uncompressed record must contain."""
        texts = (part.encode() for part in (self.key, self.tag) if part is not None)
        where = None if self.where is None else parse_where(self.where)
        return (
            *texts,
            *((self.contains,) if self.contains else ()),
            *(where.needles if where is not None else ()),
        )

    def check(self) -> None:
        """Raise PipelineError if *sql92* is invalid."""
        if self.sql92 is not None:
            try:
                compile_filter(self.sql92).check_meant()
            except SqlSyntaxError as error:
                raise PipelineError(
                    f"the condition {self.sql92!r} is not a valid SQL92 expression: {error}; "
                    "an example is region = 'eu' AND amount > 100"
                ) from None

    def matching(self, batch: Any) -> Any:
        """Return the matching rows of *batch*, which must have all columns."""
        masks = list(self._masks(batch))
        if masks:
            mask = masks[0]
            for other in masks[1:]:
                mask = pc.and_(mask, other)
            batch = batch.filter(pc.fill_null(mask, False))
        if self.sql92 is not None and batch.num_rows:
            sql_filter = compile_filter(self.sql92)
            found = batch.column("properties").to_pylist()
            mask = pa.array([sql_filter.matches(dict(pairs or ())) for pairs in found])
            batch = batch.filter(mask)
        return batch

    def _masks(self, batch: Any) -> Any:
        if self.topics:
            yield pc.is_in(batch.column("topic"), value_set=pa.array(self.topics))
        times = batch.column("storeTimestamp").cast(pa.int64())
        if self.start_ms is not None:
            yield pc.greater_equal(times, self.start_ms * 1000)
        if self.end_ms is not None:
            yield pc.less(times, self.end_ms * 1000)
        if self.tag is not None:
            yield pc.equal(batch.column("tags"), self.tag)
        if self.key is not None:
            # KEYS is a list separated by spaces.
            padded = pc.binary_join_element_wise(
                "", pc.fill_null(batch.column("keys"), ""), "", " "
            )
            in_keys = pc.match_substring(padded, f" {self.key} ")
            yield pc.or_(in_keys, pc.equal(batch.column("msgId"), self.key))
        if self.contains is not None:
            yield pc.match_substring(batch.column("body"), self.contains)
        if self.where is not None:
            found = parse_where(self.where)
            assert found is not None
            yield found.mask(batch)
