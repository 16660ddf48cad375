"""Two topics, one transaction: an abort that no reader sees, and a commit.

The second program of README.md, as printed there: `python -m examples.quickstart`.
"""

import os

from txlog import Admin, Consumer, Producer

ROOT = os.path.abspath("txlog-data/shop")  # or s3://bucket/prefix, or memory://name

admin = Admin(ROOT, create=True)
for name in {"orders", "payments"} - set(admin.list_topics()):
    admin.create_topic(name, num_partitions=2)

with Producer(ROOT, transactional_id="shop") as producer:
    producer.init_transactions()
    producer.begin_transaction()
    producer.send("orders", b"999", key=b"bob")
    producer.flush()  # it is stored, and in no topic before the commit
    producer.abort_transaction()
    with producer.transaction():  # commits at the end, or aborts on an exception
        producer.send("orders", b"12", key=b"bob")
        producer.send("payments", b"12", key=b"bob")

reading = {"isolation_level": "read_committed", "auto_offset_reset": "earliest"}
with Consumer("orders", "payments", root=ROOT, **reading) as consumer:
    for records in consumer.poll().values():
        for record in records:
            print(record.topic, record.offset, record.key, record.value)
