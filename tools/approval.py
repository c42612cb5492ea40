"""Asking a person: what is shown, what may be answered, and how a call waits for it.

A question blocks no other call and holds no place in the order; whoever asks takes a new place once it is answered.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal, Protocol

import anyio
import msgspec

from ..store.errors import PermissionNeeded
from .gate import Remember, remembered_pattern
from .registry import REGISTRY
from .rules import Subject

if TYPE_CHECKING:
    from ..store.rows import Request
    from .call import Caller
    from .gate import Gate

WITHIN_S = 15 * 60.0


class Question(msgspec.Struct, frozen=True):
    """What a person is shown: the tool, the whole code or the file's diff, and what a rule would cover."""

    request_id: str
    tool: str
    target: str
    preview: str
    resource_keys: tuple[str, ...]
    dangerous: bool
    would_remember: dict[str, str]


class Answer(msgspec.Struct, frozen=True):
    """What the person decided, and for how long."""

    decision: Literal["allow", "deny"]
    remember: Remember = "once"


class Ask(Protocol):
    """Puts a question to whoever is there; None when it was dismissed or the peer has gone."""

    async def __call__(self, question: Question) -> Answer | None: ...


def question_of(subject: Subject, request_id: str, preview: str, keys: tuple[str, ...], *, dangerous: bool) -> Question:
    """The question for a call."""
    pattern = remembered_pattern(subject.tool, subject.target)
    covers = {
        "once": "this call",
        "conversation": f"{subject.tool} {pattern} in this conversation",
        "project": f"{subject.tool} {pattern} in project {subject.project_id}",
        "always": f"{subject.tool} {pattern} everywhere",
    }
    return Question(request_id, subject.tool, subject.target, preview, keys, dangerous, covers)


def question_of_request(request: Request, project_id: str) -> Question:
    """The question of a request on record."""
    subject = Subject(request.tool, request.target, False, project_id, request.root_frame_id)
    tool = REGISTRY.find(request.tool)
    return question_of(subject, request.request_id, request.preview, (), dangerous=tool.destructive)


class Approvals:
    """Gets a person's decision for calls that the rules leave open."""

    def __init__(self, gate: Gate) -> None:
        self._gate = gate
        self._open: set[str] = set()

    async def obtain(self, question: Question, ask: Ask, caller: Caller) -> bool:
        """Put the question, and return True when this call is the one that may run on the answer.

        False: the question was put for an identical call, or is decided elsewhere: look at the rules anew.

        Raises:
            PermissionNeeded: denied, dismissed, or not answered in time.
        """
        request_id = question.request_id
        if request_id in self._open:  # an identical call asks already
            await self._gate.decision(request_id).wait()
            return False
        self._open.add(request_id)
        answered = False
        try:
            answer = await self._first_of(question, ask)
            answered = True
        finally:
            self._open.discard(request_id)
            if not answered:  # the call was cancelled, or its peer has gone
                with anyio.CancelScope(shield=True):
                    await self._gate.withdraw(request_id)
        if answer == "elsewhere":
            return False
        if answer is None:
            await self._gate.withdraw(request_id)
            raise _refused(question, "nobody answered")
        await self._gate.resolve(request_id, answer.decision, answer.remember, caller)
        if answer.decision == "deny":
            raise _refused(question, "a person refused it")
        return await self._gate.spend(request_id) if answer.remember == "once" else False

    async def _first_of(self, question: Question, ask: Ask) -> Answer | Literal["elsewhere"] | None:
        """The answer, or word that somebody decided the request by another way meanwhile."""
        answer: Answer | Literal["elsewhere"] | None = None
        decided = self._gate.decision(question.request_id)
        with anyio.move_on_after(WITHIN_S):
            async with anyio.create_task_group() as tasks:

                async def elsewhere() -> None:
                    nonlocal answer
                    await decided.wait()
                    answer = "elsewhere"
                    tasks.cancel_scope.cancel()

                tasks.start_soon(elsewhere)
                answer = await ask(question)
                tasks.cancel_scope.cancel()
        return answer


def _refused(question: Question, why: str) -> PermissionNeeded:
    return PermissionNeeded(
        f"Permission denied: {question.tool} needs approval, and {why}",
        hint="do something else, or ask the person what to do",
        data={"tool": question.tool, "request_id": question.request_id, "allow_with": None},
    )


def nobody_to_ask(subject: Subject, request_id: str) -> PermissionNeeded:
    """The error when there is no channel to a person: with how to allow the call."""
    return PermissionNeeded(
        f"Permission denied: {subject.tool} needs approval, and nobody was there to give it",
        hint=f"allow this call with permission_resolve, or all with `cellhost rules allow {subject.tool}` or by "
        f"starting the server with --allow {subject.tool}; then make the same call again",
        data={
            "tool": subject.tool,
            "request_id": request_id,
            "allow_with": {
                "method": "permission_resolve",
                "params": {"request_id": request_id, "decision": "allow", "remember": "once"},
            },
        },
    )
