"""The audit of calls."""

import sqlite3

import pytest

from cellhost.store.audit import Audit
from cellhost.store.rows import HostCall
from cellhost.store.store import Store


@pytest.fixture
def audit(store: Store) -> Audit:
    return store.control.audit


def call(method: str, at: int = 1, *, error_kind: str | None = None, args_preview: str = "") -> HostCall:
    return HostCall(
        at=at,
        door="stdio",
        method=method,
        args_preview=args_preview,
        ok=error_kind is None,
        error_kind=error_kind,
        elapsed_us=5,
    )


def methods(calls: list[HostCall]) -> list[str]:
    return [found.method for found in calls]


def test_calls_are_listed_newest_first_as_they_were_added(audit: Audit) -> None:
    audit.add_calls([call("query"), call("frames"), call("write_file", error_kind="permission")])
    found = audit.list()
    assert methods(found) == ["write_file", "frames", "query"]
    assert [entry.call_id for entry in found] == [3, 2, 1]
    assert [entry.ok for entry in found] == [False, True, True]
    assert {type(entry.ok) for entry in found} == {bool}


def test_calls_are_filtered_by_tool_time_and_refusal(audit: Audit) -> None:
    audit.add_calls(
        [
            call("query", 10),
            call("query", 20, error_kind="denied"),
            call("write_file", 30, error_kind="permission"),
            call("query", 40, error_kind="sql"),
        ]
    )
    assert methods(audit.list(methods=["query"])) == ["query"] * 3
    assert [entry.at for entry in audit.list(since=20)] == [40, 30, 20]
    assert [entry.at for entry in audit.list(denied=True)] == [30, 20]
    assert [entry.at for entry in audit.list(methods=["query"], since=15, denied=True)] == [20]
    assert [entry.at for entry in audit.list(limit=2)] == [40, 30]


def test_a_batch_is_one_commit(audit: Audit, store: Store) -> None:
    taken = [call("query"), call("frames")]
    audit.add_calls(taken)
    again = audit.list()[0]
    with pytest.raises(sqlite3.IntegrityError):
        audit.add_calls([call("lineage_get"), again])
    assert methods(audit.list()) == ["frames", "query"]


def test_previews_are_cut_at_500_characters(audit: Audit) -> None:
    audit.add_calls([call("write_file", args_preview="x" * 501)])
    assert audit.list()[0].args_preview == "x" * 500


def test_a_commit_is_on_the_disk_when_it_returns(audit: Audit, store: Store) -> None:
    audit.add_calls([call("query")])
    assert store.control.database.value("PRAGMA synchronous") == 2  # FULL: the log is synced at every commit
    other = sqlite3.connect(store.data_dir / "control.db")
    assert other.execute("SELECT count(*) FROM host_calls").fetchone() == (1,)
    other.close()
