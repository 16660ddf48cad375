"""The columns of records as Arrow."""

import pyarrow as pa

from txlog.client.consumer.consumer_record import arrow_schema


def test_place_of_a_record_is_before_its_time() -> None:
    stamp = pa.field("_timestamp", pa.timestamp("ms", "UTC"), nullable=False)
    schema = arrow_schema(pa.schema([pa.field("n", pa.int64(), nullable=False), stamp]))
    assert schema.names == ["n", "_topic", "_partition", "_offset", "_timestamp"]
    assert not schema.field("n").nullable
    assert schema.field("_topic").type == pa.dictionary(pa.int32(), pa.string())
    assert schema.field("_partition").type == pa.int32()
    assert schema.field("_offset").type == pa.int64()
    assert schema.field("_timestamp") == stamp
