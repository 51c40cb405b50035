"""What messages are looked for: a mask over a batch, and what must be in a record's bytes."""

from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from rockhopper.pipeline.errors import PipelineError
from rockhopper.pipeline.where import understood
from rockhopper.protocol.errors import SqlSyntaxError
from rockhopper.protocol.sql92 import compile_filter


@dataclass(frozen=True, slots=True)
class Condition:
    """All of these must hold; travels to the workers."""

    key: str | None = None
    """One of the message's keys, or its unique key."""
    tag: str | None = None
    contains: bytes | None = None
    """A piece of the body, decompressed."""
    sql92: str | None = None
    """An expression over properties, as consumers subscribe with."""
    topics: tuple[str, ...] = ()
    start_ms: int | None = None
    end_ms: int | None = None
    """Exclusive."""
    where: str | None = None
    """In Spark's SQL over the columns, as far as ``where.understood`` knows it."""

    @property
    def needles(self) -> tuple[bytes, ...]:
        """What the bytes of a record must hold, unless they are compressed."""
        texts = (part.encode() for part in (self.key, self.tag) if part is not None)
        where = None if self.where is None else understood(self.where)
        return (
            *texts,
            *((self.contains,) if self.contains else ()),
            *(where.needles if where is not None else ()),
        )

    def check(self) -> None:
        """Raise PipelineError if there is nothing to look for, or it makes no sense."""
        if self.sql92 is not None:
            try:
                compile_filter(self.sql92).check_meant()
            except SqlSyntaxError as error:
                raise PipelineError(
                    f"the condition {self.sql92!r} is no SQL92 expression: {error}; an example is "
                    "region = 'eu' AND amount > 100"
                ) from None

    def matching(self, batch: Any) -> Any:
        """The rows of *batch*, which has all columns, that match."""
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
            # KEYS is a list with blanks between them.
            padded = pc.binary_join_element_wise(
                "", pc.fill_null(batch.column("keys"), ""), "", " "
            )
            in_keys = pc.match_substring(padded, f" {self.key} ")
            yield pc.or_(in_keys, pc.equal(batch.column("msgId"), self.key))
        if self.contains is not None:
            yield pc.match_substring(batch.column("body"), self.contains)
        if self.where is not None:
            found = understood(self.where)
            assert found is not None
            yield found.mask(batch)
