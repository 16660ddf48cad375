"""Statements over topics: one cut, only the topics, and errors that say what is wrong."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pytest

from tests.logs.memory_log import MemoryLog
from tests.logs.partly_marked import partly_marked
from txlog.errors import CorruptData, TxlogError, UnknownTopic, UsageError
from txlog.model import IsolationLevel
from txlog.sql.session import SETTINGS, SqlSession

SECRET = pa.table({"password": ["of this process"]})
"""A variable that no statement may see."""


def rows(log: MemoryLog, statement: str, *options: Any) -> list[tuple[Any, ...]]:
    with SqlSession(log.process(), *options).run(statement) as result:
        columns = result.read_all().columns
    return list(zip(*(column.to_pylist() for column in columns), strict=True))


@pytest.fixture
def shop(log: MemoryLog) -> MemoryLog:
    """Topics `orders`, `eu.pay-ments` and `Mixed`, typed."""
    schema = pa.schema([("id", pa.int64()), ("amount", pa.float64())])
    for name in ("orders", "eu.pay-ments", "Mixed"):
        log.admin.create_topic(name, 1, schema)
        table = pa.table({"id": [1, 2, 3], "amount": [10.0, 20.0, 40.0]})
        log.producer().send_batch(name, table)
    return log


@pytest.mark.parametrize(
    ("statement", "wanted"),
    [
        ("select count(*) from orders", [(3,)]),
        ('select sum(amount) from "eu.pay-ments" where _offset > 0', [(60.0,)]),
        ("select count(*) from mixed", [(3,)]),
        ('select o.id from orders o join "eu.pay-ments" p using (id) where p.amount > 30', [(3,)]),
        (
            "select id, sum(amount) over (order by _offset) as running from orders order by id",
            [(1, 10.0), (2, 30.0), (3, 70.0)],
        ),
        ("with orders as (select max(id) as m from orders) select * from orders", [(3,)]),
        ("select a.id from orders a, orders b where a.id = b.id + 2", [(3,)]),
        ("select _topic, _partition from orders limit 1", [("orders", 0)]),
        ("select epoch_ms(_timestamp) > 0 from orders limit 1", [(True,)]),
        ("values (1, 'a')", [(1, "a")]),
    ],
)
def test_query_returns_its_rows(shop: MemoryLog, statement: str, wanted: list[Any]) -> None:
    assert rows(shop, statement) == wanted


def test_I11_one_statement_reads_one_cut_of_all_its_topics(log: MemoryLog) -> None:
    count = "select (select count(*) from t), (select count(*) from u)"
    tx_id, (mark_t, mark_u) = partly_marked(log, "t", "u")
    mark_t()
    assert rows(log, count) == [(0, 0)]
    assert rows(log, count, IsolationLevel.READ_UNCOMMITTED) == [(1, 1)]
    mark_u()
    assert rows(log, count) == [(1, 1)]
    assert rows(log, count, IsolationLevel.READ_COMMITTED, tx_id) == [(1, 1)]


@pytest.mark.parametrize(
    ("statement", "message"),
    [
        ("select nope from orders", r'"nope".*columns of orders: id, amount, _topic'),
        ("select o.nope from orders o", r'"nope".*columns of orders: id, amount'),
        (
            'select p.x from orders o, "eu.pay-ments" p',
            r'"x".*columns of eu.pay-ments: id, .*; of orders: id',
        ),
        ("select id + 'x' from orders", "Could not convert string 'x' .*columns of orders: id"),
        ("select upper(id) from orders", "upper.*columns of orders"),
        ("select nope(id) from orders", "nope"),
        ("selec 1", 'at or near "selec"'),
        ("select count(*) from orders where amount::varchar::date > '2020-01-01'", "orders"),
        ("select error('stop: ' || id) from orders", "stop: 1"),
        ("select '\ud800'", "cannot be read"),
    ],
)
def test_wrong_statement_names_column_and_topic(
    shop: MemoryLog, statement: str, message: str
) -> None:
    with pytest.raises(UsageError, match=message) as caught:
        rows(shop, statement)
    assert "LINE" not in str(caught.value)


@pytest.mark.parametrize(
    ("statement", "message"),
    [
        ("select * from ordres", "no topic 'ordres' in the log. Did you mean 'orders'"),
        ('select * from eu."pay-ments"', 'in double quotes: "eu.pay-ments"'),
        ("select * from zzz", "'txlog topic list' shows"),
        ("select * from secret", "no topic 'secret'"),
        ("select * from 'x.csv'", "no topic 'x.csv'"),
        ("select * from '/etc/passwd'", "no topic '/etc/passwd'"),
        ("select * from information_schema.tables", "no topic 'information_schema.tables'"),
        ("select * from sqlite_master", "no topic 'sqlite_master'"),
        ("with a as (select 1) select * from main.a", "no topic 'main.a'"),
    ],
)
def test_table_that_is_no_topic_is_refused(shop: MemoryLog, statement: str, message: str) -> None:
    with pytest.raises(UnknownTopic, match=message):
        rows(shop, statement)


def test_topics_that_differ_in_case_are_told_apart_only_one_by_one(shop: MemoryLog) -> None:
    shop.admin.create_topic("mixed", 1)
    assert rows(shop, 'select count(*) from "Mixed"') == [(3,)]
    assert rows(shop, "select count(*) from mixed") == [(0,)]
    with pytest.raises(UsageError, match="differ only in case"):
        rows(shop, 'select * from "Mixed", mixed')
    with pytest.raises(UnknownTopic, match="MIXED"):
        rows(shop, "select * from MIXED")


@pytest.mark.parametrize(
    "attack",
    [
        "select * from read_csv('{file}')",
        "select * from '{file}'",
        "select * from read_text('{file}')",
        "select * from glob('{folder}/*')",
        "copy (select 1) to '{folder}/written.csv'",
        "export database '{folder}/written'",
        "attach '{folder}/written.db'",
        "install httpfs",
        "load httpfs",
        "load '{file}'",
        "create persistent secret (type s3)",
        "set enable_external_access = true",
        "set python_enable_replacements = true",
        "reset lock_configuration",
        "pragma temp_directory = '{folder}'",
        "select * from secret",
        "select * from SECRET",
    ],
)
def test_engine_itself_forbids_what_is_not_a_query_of_topics(attack: str, tmp_path: Path) -> None:
    """The second wall: if a statement passed the check of its tree."""
    secret = SECRET
    file = tmp_path / "input.csv"
    file.write_text("a,b\n1,2\n")
    engine = duckdb.connect(":memory:", config=dict(SETTINGS))
    with engine, pytest.raises(duckdb.Error):
        engine.sql(attack.format(file=file, folder=tmp_path)).fetchall()
    assert os.listdir(tmp_path) == ["input.csv"]
    assert secret is SECRET


@pytest.mark.segments
def test_errors_of_the_log_keep_their_class(shop: MemoryLog) -> None:
    """DuckDB knows only their text."""
    (path,) = (path for path in shop.objects() if "/segments/" in path and "orders" in path)
    data = bytearray(shop.memory.get(path) or b"")
    data[len(data) // 2] ^= 1
    shop.memory.delete(path)
    shop.memory.put_new(path, bytes(data))
    with pytest.raises(CorruptData, match="segment"):
        rows(shop, "select sum(amount) from orders")


def test_result_is_a_stream(log: MemoryLog) -> None:
    with SqlSession(log.process()).run("select * from range(100000) r(n)") as result:
        first = result.read_next_batch()
        assert 0 < first.num_rows < 100_000
        assert first["n"][0].as_py() == 0


def test_topics_and_columns_are_those_of_statements(shop: MemoryLog) -> None:
    session = SqlSession(shop.process())
    assert session.topics() == ["Mixed", "eu.pay-ments", "orders", "t", "u"]
    assert session.columns("orders")[:3] == ["id", "amount", "_topic"]
    with pytest.raises(TxlogError):
        session.columns("nope")
