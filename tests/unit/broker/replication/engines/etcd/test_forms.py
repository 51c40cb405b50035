"""etcd's JSON, as a server of 3.4.23 wrote it."""

import msgspec
import pytest

from rockhopper.broker.replication.engines.etcd import forms
from rockhopper.broker.replication.engines.etcd.forms import (
    ErrorBody,
    Header,
    KeepAliveAnswer,
    KeyValue,
    TxnAnswer,
    WatchLine,
    decode,
)

TXN = (
    b'{"header":{"cluster_id":"14841639068965178418","member_id":"3319814642761637952",'
    b'"revision":"2","raft_term":"2"},"succeeded":true,"responses":[{"response_put":{"header":'
    b'{"revision":"2"}}},{"response_range":{"header":{"revision":"2"},"kvs":[{"key":"L3I=",'
    b'"create_revision":"2","mod_revision":"2","version":"1","value":"YQ=="}],"count":"1"}}]}'
)


def test_a_transaction_that_was_done() -> None:
    answer = decode(TXN, TxnAnswer)
    assert answer.succeeded
    assert answer.header == Header(14841639068965178418, 3319814642761637952, 2, 2)
    assert answer.responses[0].response_range is None
    found = answer.responses[1].response_range
    assert found
    assert found.kvs == [KeyValue(b"/r", b"a", 2, 0)]


def test_what_is_left_out_is_zero() -> None:
    assert not decode(b'{"header":{"revision":"2"}}', TxnAnswer).succeeded
    assert decode(b'{"result":{"header":{},"ID":"77"}}\n', KeepAliveAnswer).result.ttl_s == 0
    assert decode(b'{"result":{"ID":"77","TTL":"4"}}', KeepAliveAnswer).result.ttl_s == 4


def test_lines_of_a_watch() -> None:
    result = decode(b'{"result":{"canceled":true,"compact_revision":"3"}}', WatchLine).result
    assert result
    assert (result.canceled, result.compact_revision, result.events) == (True, 3, [])
    line = decode(b'{"error":{"grpc_code":14,"message":"no"}}', WatchLine)
    assert line.error == ErrorBody("no")


def test_what_is_no_answer_is_an_error() -> None:
    for answer in (b"", b"[]", b'{"header":{"revision":"many"}}', b"<html>"):
        with pytest.raises(msgspec.MsgspecError):
            decode(answer, TxnAnswer)


def test_a_prefix_ends_before_the_next_one() -> None:
    assert forms.under(b"/a/") == {"key": b"/a/", "range_end": b"/a0"}
    assert msgspec.json.encode(forms.put(b"/r", b"a", 5)) == (
        b'{"key":"L3I=","value":"YQ==","lease":"5"}'
    )
    assert forms.not_after(b"k", 4)["mod_revision"] == "5"
