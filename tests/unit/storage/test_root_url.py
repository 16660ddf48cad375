"""A root is a path or a URL, and a mistyped URL is never taken for the name of a folder."""

import os
from pathlib import Path

import pytest

from txlog.errors import UsageError
from txlog.storage.root_url import roots_above, split_root


@pytest.mark.parametrize(
    ("url", "scheme", "place"),
    [
        ("/data/log", "", "/data/log"),
        ("log", "", "log"),
        ("./a://b", "", "./a://b"),
        ("a/b://c", "", "a/b://c"),
        ("s3://bucket/a b%20c", "s3", "bucket/a b%20c"),
        ("S3://Bucket/Log", "s3", "Bucket/Log"),
        ("memory://a", "memory", "a"),
        ("file:///data/log", "file", "/data/log"),
        ("FILE:///data/log", "file", "/data/log"),
        ("file://localhost/data/log", "file", "/data/log"),
        ("file://./log", "file", "./log"),
        ("file://../log", "file", "../log"),
        ("file://~/log", "file", "~/log"),
        ("local:///data/log", "local", "/data/log"),
        ("file:/data/log", "file", "/data/log"),
        ("File:/data/log", "file", "/data/log"),
        ("c:/data", "", "c:/data"),
        ("no-such-scheme:x", "", "no-such-scheme:x"),
        ("./s3:x", "", "./s3:x"),
    ],
)
def test_root_has_a_scheme_and_a_place_or_is_a_path(url: str, scheme: str, place: str) -> None:
    assert split_root(url) == (scheme, place)


@pytest.mark.parametrize(
    ("url", "written"),
    [
        ("file://host/data", "'file://host/data' names the host 'host'; .* file:///host/data, "),
        ("local://host", "names the host 'host'; .* file:///host, "),
        ("file://me:hush@host/data", "names the host 'host'; .* file:///host/data, "),
        ("file://a@b@host/data", "names the host 'host'; .* file:///host/data, "),
        ("s3:/bucket/log", "write s3://bucket/log, or ./s3:/bucket/log for a folder"),
        ("S3:bucket", "write s3://bucket, or ./S3:bucket for a folder"),
        ("memory:x", "write memory://x, or ./memory:x"),
    ],
)
def test_half_url_and_host_of_a_file_url_are_refused_with_what_to_write(
    url: str, written: str
) -> None:
    with pytest.raises(UsageError, match=written) as refused:
        split_root(url)
    assert "hush" not in str(refused.value)


def test_roots_above_a_path_are_its_parents_without_links(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "real" / "log").mkdir(parents=True)
    (tmp_path / "link").symlink_to("real")
    above = [str(tmp_path / "real"), str(tmp_path), *map(str, tmp_path.parents)]
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.chdir(tmp_path)
    for root in ("link/log", "~/link/log", f"file://{tmp_path}/link/log", "file://~/real/log"):
        assert roots_above(root) == above, root
    assert roots_above("/") == []
    assert roots_above(f"local://{os.sep}") == []


def test_roots_above_a_bucket_end_with_the_bucket() -> None:
    assert roots_above("gs://lake/a/b/c") == ["gs://lake/a/b", "gs://lake/a", "gs://lake"]
    assert roots_above("gs://lake/a/b/") == ["gs://lake/a", "gs://lake"]
    assert roots_above("S3://lake/a") == ["s3://lake"]
    assert roots_above("gs://lake") == roots_above("gs://lake/") == []


def test_store_in_memory_has_nothing_above_it() -> None:
    for url in ("memory://", "memory://a", "memory://a/b/c", "MEMORY://a/b"):
        assert roots_above(url) == []
