"""A root that is removed, replaced, emptied or moved under a live store; links and pipes in it."""

import errno
import multiprocessing
import os
import pickle
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.unit.open_files import open_below
from txlog.clock import Runtime
from txlog.errors import NotATxlog, OutcomeUnknown, StoreDenied
from txlog.storage import ByteRange, Created, LocalStore
from txlog.storage.disk import root_folder as opening
from txlog.storage.disk.new_file import publish_exclusively
from txlog.storage.store import hold

Change = Callable[[Path], object]


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """The root of a new log."""
    return new_log(tmp_path / "log")


@pytest.fixture
def store(root: Path) -> LocalStore:
    """A store with one object."""
    store = LocalStore(root, Runtime(), durable=False)
    assert hold(store, "file")
    return store


def new_log(root: Path) -> Path:
    (root / "a").mkdir(parents=True)
    (root / "file").write_bytes(os.urandom(16))
    (root / "a/there").write_bytes(b"x")
    return root


def removed(root: Path) -> None:
    shutil.rmtree(root)


def emptied(root: Path) -> None:
    shutil.rmtree(root / "a")
    (root / "file").unlink()


def renamed(root: Path) -> None:
    root.rename(root.with_name("renamed"))


def removed_and_made_anew(root: Path) -> None:
    shutil.rmtree(root)
    new_log(root)


def emptied_and_filled_anew(root: Path) -> None:
    emptied(root)
    (root / "a").mkdir()
    (root / "file").write_bytes(b"another")


def another_in_its_place(root: Path) -> None:
    renamed(root)
    new_log(root)


def a_link_to_another_in_its_place(root: Path) -> None:
    renamed(root)
    root.symlink_to(new_log(root.with_name("other")))


def a_file_in_its_place(root: Path) -> None:
    shutil.rmtree(root)
    root.write_bytes(b"x")


def its_files_in_another_root(root: Path) -> None:
    """Every file has its inode and its status, but for the time of the move."""
    renamed(root)
    (root / "a").mkdir(parents=True)
    for path in ("file", "a/there"):
        (root.with_name("renamed") / path).rename(root / path)


def hard_links_to_it_in_its_place(root: Path) -> None:
    """As a backup whose unchanged files are links to the same inodes."""
    renamed(root)
    shutil.copytree(root.with_name("renamed"), root, copy_function=os.link)


CHANGES: list[Change] = [
    removed,
    emptied,
    renamed,
    removed_and_made_anew,
    emptied_and_filled_anew,
    another_in_its_place,
    a_link_to_another_in_its_place,
    a_file_in_its_place,
    its_files_in_another_root,
    hard_links_to_it_in_its_place,
]


def tree(folder: Path) -> list[str]:
    return sorted(str(path.relative_to(folder)) for path in folder.rglob("*"))


WRITES: dict[str, Callable[[LocalStore], object]] = {
    "create": lambda store: store.create("a/1", b"x"),
    "create what is there": lambda store: store.create("a/there", b"x"),
    "put_new": lambda store: store.put_new("b/c/1", b"x"),
    "open_new": lambda store: store.open_new("a/1"),
    "replace": lambda store: store.replace("a/there", b"y"),
    "delete": lambda store: store.delete("a/there"),
    "sweep": lambda store: store.sweep_temporaries(0),
    "get what is absent": lambda store: store.get("a/absent"),
    "ranges of what is absent": lambda store: store.get_ranges("a/absent", [ByteRange(0, 1)]),
}


@pytest.mark.parametrize("change", CHANGES)
@pytest.mark.parametrize("call", WRITES)
def test_calls_after_log_is_gone_or_replaced_are_refused_and_write_nothing(
    store: LocalStore, root: Path, tmp_path: Path, change: Change, call: str
) -> None:
    change(root)
    before = tree(tmp_path)
    with pytest.raises(NotATxlog, match="is not there any more"):
        WRITES[call](store)
    assert tree(tmp_path) == before


@pytest.mark.parametrize("change", CHANGES)
@pytest.mark.parametrize("method", ["create", "put_new"])
def test_write_has_unknown_outcome_if_log_changes_after_publish(
    root: Path, tmp_path: Path, change: Change, method: str
) -> None:
    changed = []

    def publish(folder: int, temporary: str, target: str) -> bool:
        published = publish_exclusively(folder, temporary, target)
        change(root)
        changed.append(tree(tmp_path))
        return published

    store = LocalStore(root, Runtime(), publish=publish)
    hold(store, "file")
    with pytest.raises(OutcomeUnknown, match="outcome unknown"):
        getattr(store, method)("a/1", b"x")
    assert [path for path in tree(tmp_path) if ".tmp-" not in path] == [
        path for path in changed[0] if ".tmp-" not in path
    ]


def test_finish_of_new_object_is_refused_if_log_was_replaced(store: LocalStore, root: Path) -> None:
    new = store.open_new("a/1")
    new.write(b"x")
    removed_and_made_anew(root)
    with pytest.raises(NotATxlog):
        new.finish()
    assert tree(root) == ["a", "a/there", "file"]


def in_pieces(store: LocalStore) -> None:
    new = store.open_new("a/1")
    new.write(b"x")
    new.finish()


def in_one_piece(store: LocalStore) -> None:
    store.put_new("a/1", b"x")


@pytest.mark.parametrize(
    ("write", "is_answered"), [(in_pieces, True), (in_one_piece, True), (in_one_piece, False)]
)
def test_unknown_outcome_in_moved_log_names_the_object(
    root: Path, write: Callable[[LocalStore], None], is_answered: bool
) -> None:
    """An unanswered publish reports the name as taken, though this object has taken it."""

    def publish(folder: int, temporary: str, target: str) -> bool:
        published = publish_exclusively(folder, temporary, target)
        renamed(root)
        return published and is_answered

    store = LocalStore(root, Runtime(), publish=publish)
    hold(store, "file")
    with pytest.raises(OutcomeUnknown) as raised:
        write(store)
    assert raised.value.facts["path"] == f"{root}/a/1"


def test_store_works_again_after_moved_root_is_restored(store: LocalStore, root: Path) -> None:
    renamed(root)
    with pytest.raises(NotATxlog):
        store.create("a/1", b"x")
    root.with_name("renamed").rename(root)
    assert store.create("a/1", b"x") == Created()


def test_backup_of_hard_links_in_place_of_the_root_is_refused(root: Path) -> None:
    """The backup is from before the log was opened, so that no file of it changes any more."""
    backup = root.with_name("backup")
    shutil.copytree(root, backup, copy_function=os.link)
    store = LocalStore(root, Runtime(), durable=False)
    hold(store, "file")
    assert store.create("a/1", b"x") == Created()
    renamed(root)
    backup.rename(root)
    with pytest.raises(NotATxlog):
        store.create("a/2", b"x")


def test_removed_root_is_not_recreated_even_if_it_held_no_log(tmp_path: Path) -> None:
    store = LocalStore(tmp_path / "log", Runtime(), durable=False)
    assert store.get("a") is None
    assert store.create("a", b"x") == Created()
    shutil.rmtree(tmp_path / "log")
    with pytest.raises(NotATxlog):
        store.create("b", b"x")
    assert not (tmp_path / "log").exists()


def test_hold_refuses_missing_root_and_missing_or_replaced_file(
    store: LocalStore, root: Path
) -> None:
    with pytest.raises(NotATxlog, match="no such folder"):
        hold(LocalStore(root / "absent", Runtime()), "file")
    with pytest.raises(NotATxlog, match="no absent in it"):
        hold(LocalStore(root, Runtime()), "absent")
    assert hold(store, "file")
    emptied_and_filled_anew(root)
    with pytest.raises(NotATxlog, match="file in it was replaced"):
        hold(store, "file")


def test_symlink_to_root_is_resolved_once(tmp_path: Path) -> None:
    first, second = new_log(tmp_path / "first"), new_log(tmp_path / "second")
    link = tmp_path / "log"
    link.symlink_to(first)
    store = LocalStore(link, Runtime(), durable=False)
    hold(store, "file")
    link.unlink()
    link.symlink_to(second)
    assert store.create("a/1", b"x") == Created()
    assert (first / "a/1").exists()
    assert not (second / "a/1").exists()


def test_root_is_created_at_target_of_dangling_symlink(tmp_path: Path) -> None:
    (tmp_path / "log").symlink_to(tmp_path / "volume" / "log")
    store = LocalStore(tmp_path / "log", Runtime())
    assert store.create("a/1", b"x") == Created()
    assert (tmp_path / "volume/log/a/1").exists()


def forked(check: Callable[[], bool]) -> bool:
    """The check's result in a forked process, which has this process's descriptors."""
    child = os.fork()
    if child == 0:
        os._exit(0 if check() else 1)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0


def test_forked_process_uses_store_and_detects_replaced_root(store: LocalStore, root: Path) -> None:
    assert forked(lambda: store.create("a/1", b"x") == Created())
    removed_and_made_anew(root)
    assert forked(lambda: _is_refused(store))


def _is_refused(store: LocalStore) -> bool:
    try:
        store.create("a/2", b"x")
    except NotATxlog:
        return True
    return False


def test_pickled_store_opens_in_another_process(store: LocalStore) -> None:
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        assert pool.apply(_read_there, (pickle.dumps(store),)) == b"x"
    assert pickle.loads(pickle.dumps(store)).url == store.url


def _read_there(pickled: bytes) -> bytes | None:
    found: bytes | None = pickle.loads(pickled).get("a/there")
    return found


def test_deleted_store_leaks_no_open_files(root: Path) -> None:
    before = open_below(root)
    for number in range(50):
        store = LocalStore(root, Runtime(), durable=False)
        hold(store, "file")
        store.create(f"b/{number}", b"x")
        store.open_new("b/x").discard()
        list(store.list_after(""))
        with pytest.raises(StoreDenied):
            store.create("a", b"x")
        del store
    assert open_below(root) == before


# Links, pipes and folders in place of a log's objects.


@pytest.fixture(params=["openat2", "part by part"])
def linked(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch, root: Path) -> Path:
    """A root in which a folder is a link to another user's, on both kinds of kernel."""
    if request.param != "openat2":
        monkeypatch.setattr(opening, "_has_openat2", lambda: False)
    outside = root.with_name("outside")
    outside.mkdir()
    (outside / "authorized_keys").write_bytes(b"key")
    (root / "links").symlink_to(outside)
    (root / "a/link").symlink_to(outside / "authorized_keys")
    (root / "a/hanging").symlink_to(outside / "absent")
    return outside


THROUGH_LINKS: dict[str, Callable[[LocalStore], object]] = {
    "get": lambda store: store.get("links/authorized_keys"),
    "get a link": lambda store: store.get("a/link"),
    "get a hanging link": lambda store: store.get("a/hanging"),
    "ranges": lambda store: store.get_ranges("links/authorized_keys", [ByteRange(0, 1)]),
    "create": lambda store: store.create("links/1", b"x"),
    "create where a link is": lambda store: store.create("a/link", b"x"),
    "create where a hanging link is": lambda store: store.create("a/hanging", b"x"),
    "create below": lambda store: store.create("links/b/1", b"x"),
    "put_new": lambda store: store.put_new("links/1", b"x"),
    "open_new": lambda store: store.open_new("links/1"),
    "replace": lambda store: store.replace("links/authorized_keys", b"x"),
    "delete": lambda store: store.delete("links/authorized_keys"),
    "list": lambda store: list(store.list_after("links/")),
}


@pytest.mark.parametrize("call", THROUGH_LINKS)
def test_symlinks_below_the_root_are_not_followed(
    store: LocalStore, linked: Path, call: str
) -> None:
    with pytest.raises(StoreDenied, match="symbolic link"):
        THROUGH_LINKS[call](store)
    assert tree(linked) == ["authorized_keys"]
    assert (linked / "authorized_keys").read_bytes() == b"key"


def test_symlinks_are_not_listed_and_delete_removes_only_the_link(
    store: LocalStore, linked: Path
) -> None:
    assert [found.path for found in store.list_after("")] == ["a/there", "file"]
    assert list(store.list_after("a/h")) == []
    store.delete("a/link")
    store.delete("a/hanging")
    assert tree(linked) == ["authorized_keys"]
    assert [found.path for found in store.list_after("a/")] == ["a/there"]


def test_object_below_a_missing_folder_is_absent_and_below_a_file_refused(
    store: LocalStore, linked: Path
) -> None:
    assert linked.is_dir()
    assert store.get("absent/b/c") is None
    for read in (store.get, lambda path: list(store.list_after(f"{path}/"))):
        with pytest.raises(StoreDenied, match="in the way"):
            read("file/b/c")


@pytest.mark.timeout(20)
def test_named_pipe_in_place_of_folder_does_not_block(store: LocalStore, root: Path) -> None:
    os.mkfifo(root / "a/pipe")
    for call in (
        lambda: store.delete("a/pipe/b"),
        lambda: store.get("a/pipe/b"),
        lambda: store.create("a/pipe/b", b"x"),
    ):
        with pytest.raises(StoreDenied, match="in the way"):
            call()


@pytest.mark.timeout(20)
def test_named_pipe_in_place_of_object_does_not_block(store: LocalStore, root: Path) -> None:
    os.mkfifo(root / "a/pipe")
    for call in (
        lambda: store.get("a/pipe"),
        lambda: store.get_ranges("a/pipe", [ByteRange(0, 1)]),
        lambda: store.create("a/pipe", b"x"),
        lambda: store.put_new("a/pipe", b"x"),
    ):
        with pytest.raises(StoreDenied, match="not a regular file"):
            call()
    assert [found.path for found in store.list_after("a/")] == ["a/there"]


def test_openat2_and_opening_by_parts_have_equal_results(root: Path) -> None:
    assert opening._has_openat2(), "this test needs Linux 5.6"
    (root / "deep/er").mkdir(parents=True)
    (root / "deep/er/file").write_bytes(b"x")
    (root / "deep/link").symlink_to("er")
    folder = os.open(root, os.O_RDONLY)
    answers = []
    for path in ("file", "deep/er/file", "absent", "no/file", "file/x", "deep/link/file"):
        for way in (opening.open_below, opening.open_by_parts):
            try:
                descriptor = way(folder, path, os.O_RDONLY)
            except OSError as error:
                answers.append(errno.errorcode[error.errno or 0])
            else:
                answers.append(str(os.fstat(descriptor).st_size))
                os.close(descriptor)
    files = open_below(root)
    with pytest.raises(FileNotFoundError):
        opening.open_by_parts(folder, "deep/er/absent", os.O_RDONLY)
    assert open_below(root) == files
    os.close(folder)
    assert answers[::2] == answers[1::2]
    assert answers[-2:] == ["ELOOP", "ELOOP"]
