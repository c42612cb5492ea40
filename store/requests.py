"""Permission requests: calls that wait for a person, and answers that wait for the call to come again.

    pending ──► allowed ──► spent
       │   ╲
       │    ╲─► denied
       ▼
    withdrawn, expired ──► allowed, denied      a late answer counts for the next identical call

Every change is one conditional statement, so of any number of threads and processes exactly one makes it.
"""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING

from .checks import check_one_of, invalid
from .errors import NotFound
from .ids import new_id, now_ms
from .rows import Request

if TYPE_CHECKING:
    from .sqlite import Database

ANSWERS = {"allow": "allowed", "deny": "denied"}
TIME_TO_ANSWER_MS = 15 * 60 * 1000
_ANSWERABLE = "('pending', 'withdrawn', 'expired')"


def target_hash(target: str) -> str:
    """What makes two calls of a tool identical: SHA-256 of the target, hex."""
    return hashlib.sha256(target.encode("utf-8", "surrogatepass")).hexdigest()


class Requests:
    """The `permission_requests` table of control.db."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def add(self, *, root_frame_id: str, door: str, tool: str, target: str, preview: str) -> Request:
        """Puts a pending request on record; it expires 15 minutes later."""
        now = now_ms()
        request = Request(
            request_id=new_id("perm"),
            root_frame_id=root_frame_id,
            door=door,
            tool=tool,
            target=target,
            target_hash=target_hash(target),
            preview=preview,
            state="pending",
            created_at=now,
            expires_at=now + TIME_TO_ANSWER_MS,
        )
        self._database.insert(request)
        return request

    def get(self, request_id: str) -> Request:
        """Raises `NotFound`."""
        request = self._database.first(Request, "WHERE request_id = ?", [request_id])
        if request is None:
            raise NotFound("no such permission request", hint="permission_pending lists those that wait")
        return request

    def find(self, root_frame_id: str, tool: str, target_hash: str) -> Request | None:
        """The newest request of an identical call that still waits or was allowed and not spent."""
        where = (
            "WHERE root_frame_id = ? AND tool = ? AND target_hash = ? AND state IN ('pending', 'allowed')"
            " ORDER BY rowid DESC LIMIT 1"
        )
        return self._database.first(Request, where, [root_frame_id, tool, target_hash])

    def pending(self, root_frame_id: str | None = None) -> list[Request]:
        """Those that wait for an answer, oldest first, of one session where given; ends the overdue ones first."""
        self.expire()
        where = "WHERE state = 'pending' AND root_frame_id = ifnull(?, root_frame_id) ORDER BY rowid"
        return self._database.select(Request, where, [root_frame_id])

    def resolve(self, request_id: str, decision: str) -> Request:
        """Answers a request `allow` or `deny`. Raises `NotFound`, and `InvalidParams` when it has an answer."""
        check_one_of("$.decision", decision, ANSWERS)
        state = ANSWERS[decision]
        if not self._move(request_id, state, f"state IN {_ANSWERABLE}"):
            raise invalid("$.request_id", f"the request is {self.get(request_id).state} already")
        return self.get(request_id)

    def withdraw(self, request_id: str) -> bool:
        """Takes the question back (cancelled, disconnected, timed out); false when it is pending no more."""
        return self._move(request_id, "withdrawn", "state = 'pending'")

    def spend(self, request_id: str) -> bool:
        """Uses up an allowed request for the call that asked; true for exactly one caller."""
        return self._move(request_id, "spent", "state = 'allowed'")

    def spend_once(self, root_frame_id: str, tool: str, target_hash: str) -> str | None:
        """Uses up one allowed request for an identical call and returns its id; each goes to exactly one caller."""
        sql = (
            "UPDATE permission_requests SET state = 'spent' WHERE state = 'allowed' AND request_id ="
            " (SELECT request_id FROM permission_requests WHERE root_frame_id = ? AND tool = ?"
            " AND target_hash = ? AND state = 'allowed' ORDER BY decided_at, rowid LIMIT 1) RETURNING request_id"
        )
        spent = self._database.value(sql, [root_frame_id, tool, target_hash])
        return str(spent) if spent else None

    def expire(self, now: int | None = None) -> int:
        """Ends the questions that nobody answered in time; how many."""
        due = now_ms() if now is None else now
        overdue = "state = 'pending' AND expires_at <= ?"
        if not self._database.rows(f"SELECT 1 FROM permission_requests WHERE {overdue} LIMIT 1", [due]):
            return 0
        return self._database.execute(f"UPDATE permission_requests SET state = 'expired' WHERE {overdue}", [due])

    def _move(self, request_id: str, state: str, condition: str) -> bool:
        decided = now_ms() if state in ANSWERS.values() else None
        sql = (
            "UPDATE permission_requests SET state = ?, decided_at = ifnull(?, decided_at)"
            f" WHERE request_id = ? AND {condition}"
        )
        return self._database.execute(sql, [state, decided, request_id]) > 0
