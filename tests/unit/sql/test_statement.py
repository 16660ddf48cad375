"""A statement may only query topics; what it names is found without running it."""

import json

import duckdb
import pytest

from txlog.errors import UsageError
from txlog.sql.statement import Tables, tables_of


def tables(statement: str) -> Tables:
    ((tree,),) = duckdb.execute("select json_serialize_sql(?)", [statement]).fetchall()
    return tables_of(tree)


@pytest.mark.parametrize(
    ("statement", "names"),
    [
        ("select 1", []),
        ("from orders;", ["orders"]),
        ("table orders", ["orders"]),
        ("describe orders", ["orders"]),
        ("summarize select a from orders", ["orders"]),
        ('select * from orders o join "my.topic" m using (k)', ["my.topic", "orders"]),
        ("select * from eu.orders", ["eu.orders"]),
        ("select (select max(n) from a) from b where x in (select y from c)", ["a", "b", "c"]),
        ("select * from a union all select * from b order by 1 limit 3", ["a", "b"]),
        ("select sum(n) over (partition by k order by t) from a qualify n > 1", ["a"]),
        ("select * from range(5) r, a, lateral (select * from b where b.n = a.n)", ["a", "b"]),
        ("select * from a positional join b", ["a", "b"]),
        ("select * from a asof join b on a.t >= b.t", ["a", "b"]),
    ],
)
def test_tables_are_found_wherever_they_are_named(statement: str, names: list[str]) -> None:
    assert sorted(".".join(path) for path in tables(statement).names) == names


def test_names_given_by_with_are_known_in_lower_case() -> None:
    found = tables("with Recent as (select * from orders) select * from recent")
    assert found.own == {"recent"}
    assert sorted(found.names) == [("orders",), ("recent",)]


@pytest.mark.parametrize(
    "statement",
    [
        "copy orders to '/tmp/x.csv'",
        "copy (select 1) to '/tmp/x.csv'",
        "attach '/tmp/x.db'",
        "install httpfs",
        "load httpfs",
        "set enable_external_access = true",
        "reset enable_external_access",
        "set variable x = 1",
        "pragma database_list",
        "call pragma_version()",
        "create table t as select 1",
        "create macro f() as 1",
        "create secret (type s3)",
        "insert into orders values (1)",
        "delete from orders",
        "drop view orders",
        "export database '/tmp/x'",
        "explain select 1",
        "prepare p as select 1",
        "checkpoint",
        "vacuum",
        "use memory",
        "begin",
        "select 1; select 2",
        "select 1; copy (select 1) to '/tmp/x.csv'",
        "",
        ";",
        "-- nothing",
    ],
)
def test_anything_but_one_query_is_refused(statement: str) -> None:
    with pytest.raises(UsageError, match="nly one query at a time"):
        tables(statement)


@pytest.mark.parametrize(
    "call",
    [
        "read_csv('/etc/passwd')",
        "read_text('/etc/passwd')",
        "read_blob('/etc/passwd')",
        "read_parquet('x.parquet')",
        "read_json('x.json')",
        "glob('/*')",
        "query('select 1')",
        "query_table('orders')",
        "duckdb_settings()",
        "duckdb_secrets()",
        "pragma_version()",
        "pandas_scan(1)",
        "arrow_scan(1, 2, 3)",
        "json_execute_serialized_sql('{}')",
        "sniff_csv('x.csv')",
    ],
)
@pytest.mark.parametrize(
    "query",
    [
        "select * from {}",
        "with a as (select * from {}) select * from a",
        "select 1 where exists (from {})",
        "describe select * from {}",
    ],
)
def test_function_that_reads_something_else_is_refused(call: str, query: str) -> None:
    with pytest.raises(
        UsageError, match=f"{call.partition('(')[0]}\\(\\) reads more than the topics"
    ):
        tables(query.format(call))


def test_deeply_nested_tree_is_refused() -> None:
    with pytest.raises(UsageError, match="cannot be taken apart"):
        tables_of('{"error": false, "statements": [' + "[" * 100_000)
    flat = {"error": False, "statements": [{"type": "BASE_TABLE"}]}
    with pytest.raises(UsageError, match="cannot be taken apart"):
        tables_of(json.dumps(flat))
