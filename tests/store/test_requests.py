"""Permission requests: who answers, who withdraws, and who gets the one call that was allowed."""

import subprocess
import sys
import threading
from pathlib import Path

import pytest

from cellhost.store.errors import InvalidParams, NotFound
from cellhost.store.requests import TIME_TO_ANSWER_MS, Requests, target_hash
from cellhost.store.rows import Request
from cellhost.store.store import Store

HASH = target_hash("print(1)")


@pytest.fixture
def requests(store: Store) -> Requests:
    return store.control.requests


def ask(requests: Requests, root_frame_id: str = "f-1") -> Request:
    return requests.add(
        root_frame_id=root_frame_id,
        door="stdio",
        tool="exec_background",
        target="print(1)",
        preview="print(1)",
    )


def test_a_request_waits_fifteen_minutes(requests: Requests) -> None:
    request = ask(requests)
    assert request.expires_at - request.created_at == 15 * 60 * 1000
    assert requests.pending() == [request]
    assert requests.pending("f-2") == []
    assert requests.expire(request.expires_at - 1) == 0
    assert requests.expire(request.expires_at) == 1
    assert requests.pending() == []
    assert requests.get(request.request_id).state == "expired"


def test_pending_ends_overdue_requests_first(store: Store, requests: Requests) -> None:
    request = ask(requests)
    store.control.database.execute(
        "UPDATE permission_requests SET expires_at = expires_at - ?", [TIME_TO_ANSWER_MS + 1]
    )
    assert requests.pending() == []
    assert requests.get(request.request_id).state == "expired"


def test_a_pending_request_survives_a_restart(store: Store, requests: Requests, tmp_path: Path) -> None:
    request = ask(requests)
    store.close()
    with Store(tmp_path / "data") as again:
        assert again.control.requests.pending() == [request]


@pytest.mark.parametrize(("decision", "state"), [("allow", "allowed"), ("deny", "denied")])
def test_an_answer_counts_once(requests: Requests, decision: str, state: str) -> None:
    request = ask(requests)
    answered = requests.resolve(request.request_id, decision)
    assert (answered.state, answered.decided_at is not None) == (state, True)
    with pytest.raises(InvalidParams, match=f"is {state} already"):
        requests.resolve(request.request_id, "allow")
    assert requests.withdraw(request.request_id) is False
    assert requests.get(request.request_id) == answered


def test_a_withdrawn_request_stays_and_may_be_allowed_later(requests: Requests) -> None:
    request = ask(requests)
    assert requests.withdraw(request.request_id) is True
    assert requests.pending() == []
    assert requests.spend_once("f-1", "exec_background", HASH) is None
    assert requests.resolve(request.request_id, "allow").state == "allowed"
    assert requests.spend_once("f-1", "exec_background", HASH) == request.request_id
    assert requests.get(request.request_id).state == "spent"


def test_only_the_identical_call_of_the_same_session_spends(requests: Requests) -> None:
    request = ask(requests)
    requests.resolve(request.request_id, "allow")
    assert requests.spend_once("f-2", "exec_background", HASH) is None
    assert requests.spend_once("f-1", "write_file", HASH) is None
    assert requests.spend_once("f-1", "exec_background", target_hash("print(2)")) is None
    assert requests.spend(request.request_id) is True
    assert requests.spend(request.request_id) is False


def test_a_pending_or_denied_request_is_never_spent(requests: Requests) -> None:
    first, second = ask(requests), ask(requests)
    requests.resolve(second.request_id, "deny")
    assert requests.spend_once("f-1", "exec_background", HASH) is None
    assert requests.spend(first.request_id) is False


def test_find_gives_the_newest_that_waits_or_was_allowed(requests: Requests) -> None:
    assert requests.find("f-1", "exec_background", HASH) is None
    first, second = ask(requests), ask(requests)
    assert requests.find("f-1", "exec_background", HASH) == second
    requests.withdraw(second.request_id)
    assert requests.find("f-1", "exec_background", HASH) == first


def test_an_unknown_request_and_an_unknown_answer_are_refused(requests: Requests) -> None:
    with pytest.raises(NotFound, match="no such permission request"):
        requests.resolve("perm-000000000000", "allow")
    request = ask(requests)
    with pytest.raises(InvalidParams, match="allow, deny"):
        requests.resolve(request.request_id, "perhaps")
    assert requests.get(request.request_id) == request


def test_one_of_eight_racing_threads_gets_the_call(store: Store, requests: Requests, tmp_path: Path) -> None:
    allowed = requests.resolve(ask(requests).request_id, "allow").request_id
    stores = [Store(tmp_path / "data") for _ in range(2)]
    start, got = threading.Barrier(8), list[str | None]()

    def race(number: int) -> None:
        start.wait(timeout=30)
        got.append(stores[number % 2].control.requests.spend_once("f-1", "exec_background", HASH))

    threads = [threading.Thread(target=race, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(timeout=30)
    for opened in stores:
        opened.close()
    assert sorted(got, key=str) == [None] * 7 + [allowed]


def test_one_of_eight_racing_processes_gets_the_call(requests: Requests, tmp_path: Path) -> None:
    allowed = requests.resolve(ask(requests).request_id, "allow").request_id
    program = (
        "import sys; from pathlib import Path; from cellhost.store.store import Store\n"
        "store = Store(Path(sys.argv[1])); store.permission_rules()\n"
        "print('ready', flush=True); sys.stdin.readline()\n"
        "print(store.control.requests.spend_once('f-1', 'exec_background', sys.argv[2]))"
    )
    command = [sys.executable, "-P", "-c", program, str(tmp_path / "data"), HASH]
    racers = [subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) for _ in range(8)]
    for racer in racers:
        assert racer.stdout is not None
        assert racer.stdout.readline() == "ready\n"
    for racer in racers:
        assert racer.stdin is not None
        racer.stdin.write("\n")
        racer.stdin.flush()
    got = [racer.communicate(timeout=60)[0].strip() for racer in racers]
    assert sorted(got) == ["None"] * 7 + [allowed]
