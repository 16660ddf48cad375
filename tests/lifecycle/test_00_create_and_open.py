"""Stage 0: a log is created once, and opened by any process."""

import pytest

from tests.lifecycle.log_place import LogPlace
from txlog.client.admin import Admin
from txlog.errors import NotATxlog


def test_log_is_created_once_and_opened_by_every_process(place: LogPlace) -> None:
    place = LogPlace(f"{place.url}-{place.name('fresh')}", place.options)
    with pytest.raises(NotATxlog):
        place.process()
    assert list(place.store.list_after("")) == []
    created = place.process(create=True)
    settings = created.cluster.file.settings
    names = [found.path for found in place.store.list_after("")]
    assert [path for path in names if not path.endswith(f"/entries/{0:020}.json")] == ["txlog.json"]
    assert len(names) == 2 + settings.transaction_state_log_num_partitions
    again = place.process(create=True)
    opened = place.process()
    assert created.cluster.log_id == again.cluster.log_id == opened.cluster.log_id
    assert Admin(opened).list_topics() == []


def test_admin_opens_the_log_by_its_url(place: LogPlace) -> None:
    admin = Admin(place.url, storage_options=place.options)
    assert admin.connection.cluster.log_id == place.process().cluster.log_id
