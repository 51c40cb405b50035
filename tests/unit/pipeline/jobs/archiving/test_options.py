"""What an archive is asked for, in the words of the job."""

import pytest

from rockhopper.pipeline.errors import PipelineError
from rockhopper.pipeline.jobs.archiving.options import ArchiveOptions
from rockhopper.pipeline.jobs.results import UsageProblem


def test_a_topic_that_is_named_twice_is_chosen_once() -> None:
    assert ArchiveOptions("a", topics=["x", "y", "x"]).selection.topics == ("x", "y")


def test_topics_and_a_pattern_are_refused_together() -> None:
    with pytest.raises(UsageProblem, match="mutually exclusive"):
        _ = ArchiveOptions("a", topics=["x"], pattern="x.*").selection


def test_bodies_are_decoded_by_the_schema_that_is_given() -> None:
    schema = '{"type": "object", "properties": {"n": {"type": "integer"}}}'
    value = ArchiveOptions("a", decode="json", schema=schema).value
    assert value is not None
    assert (value.format, value.schema) == ("json", schema)
    assert ArchiveOptions("a").value is None


def test_a_schema_that_is_none_is_refused() -> None:
    with pytest.raises(PipelineError):
        _ = ArchiveOptions("a", decode="json", schema="no schema").value


def test_what_is_read_is_named() -> None:
    assert ArchiveOptions("a", path="store").source == "store"
    assert ArchiveOptions("a", nameserver="h:9876").source == "the brokers behind h:9876"


def test_a_registry_needs_to_know_of_which_subject_the_column_is() -> None:
    where = "http://127.0.0.1:1"
    for topics in ((), ("x", "y")):
        with pytest.raises(UsageProblem, match=r"--subject, or archive one topic"):
            _ = ArchiveOptions("a", topics=topics, decode="confluent-avro", registry=where).value
