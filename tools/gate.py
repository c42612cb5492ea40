"""The permission gate: what the rules say of a call, and the requests that wait for a person's decision."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal

import anyio
import msgspec

from ..store.errors import InvalidParams, Issue, PermissionNeeded
from ..store.requests import target_hash
from ..store.rows import Rule
from .registry import REGISTRY
from .rules import Decision, Subject, Verdict, code_pattern, decide, literal_pattern

if TYPE_CHECKING:
    from collections.abc import Iterable

    from ..store.control import Control
    from .call import Caller
    from .harness import PermissionSetParams
    from .store_thread import StoreThread

Remember = Literal["once", "conversation", "project", "always"]

_SCOPES: dict[Remember, Literal["conversation", "project", "global"]] = {
    "conversation": "conversation",
    "project": "project",
    "always": "global",
}
PREVIEW_CHARS = 200_000
CODE_TOOLS = frozenset({"exec_background", "exec"})
"""Tools whose target is code; a rule that remembers an approval of one stands for that code by its hash."""


class Resolution(msgspec.Struct, frozen=True):
    """A request after a decision, and the rule that remembers it."""

    state: str
    rule_id: str | None = None


class Admission(msgspec.Struct, frozen=True):
    """May the call run; and the approval that was spent on it, if one was."""

    allowed: bool
    request_id: str | None = None


class Gate:
    """Decides calls of tools that need approval. Stored rules and those of this server's command line count alike."""

    def __init__(self, store: StoreThread, own_rules: Iterable[tuple[str, str, Decision]]) -> None:
        self._store = store
        self._own = tuple(own_rules)
        self._decided: dict[str, anyio.Event] = {}
        self._projects: dict[str, str] = {}  # of sessions that asked and may not be written yet

    @property
    def _control(self) -> Control:
        return self._store.store.control

    async def rules(self, caller: Caller) -> list[Rule]:
        """All rules, whatever their scope: stored ones first, then those of the command line."""
        return await self._store.run(self._control.rules.list) + self._own_rules(caller.root_frame_id)

    async def check(self, subject: Subject) -> Verdict:
        """What the rules say, without asking anybody."""
        return await self._store.run(self._verdict, subject)

    async def admit(self, subject: Subject) -> Admission:
        """Whether the call may run now: by a rule, or by an approval that was given for it and is spent on it.

        Raises:
            PermissionNeeded: a rule denies it.
        """
        return await self._store.run(self._admit, subject)

    def _verdict(self, subject: Subject) -> Verdict:
        stored = self._control.rules.applicable(
            tool=subject.tool, project_id=subject.project_id, root_frame_id=subject.root_frame_id
        )
        return decide(stored + self._own_rules(subject.root_frame_id), subject)

    def _admit(self, subject: Subject) -> Admission:
        verdict = self._verdict(subject)
        if verdict.decision == "deny":
            raise PermissionNeeded(
                f"Permission denied: a rule denies {subject.tool}",
                hint="a person can remove the rule (permission_remove, or `cellhost rules`)",
                data={"tool": subject.tool, "request_id": None, "rule_id": verdict.rule_id, "allow_with": None},
            )
        if verdict.decision == "allow":
            return Admission(allowed=True)
        spent = self._control.requests.spend_once(subject.root_frame_id, subject.tool, target_hash(subject.target))
        return Admission(allowed=spent is not None, request_id=spent)

    async def on_record(self, subject: Subject, caller: Caller, preview: str) -> str:
        """The id of the request for this call; the same call made again is the same request."""
        return await self._store.run(self._on_record, subject, caller, preview)

    def _on_record(self, subject: Subject, caller: Caller, preview: str) -> str:
        self._projects[subject.root_frame_id] = subject.project_id
        wanted = (subject.tool, target_hash(subject.target))
        for request in self._control.requests.pending(subject.root_frame_id):
            if (request.tool, request.target_hash) == wanted:
                return request.request_id
        request = self._control.requests.add(
            root_frame_id=subject.root_frame_id,
            door=caller.door,
            tool=subject.tool,
            target=subject.target,
            preview=preview[:PREVIEW_CHARS],
        )
        return request.request_id

    def decision(self, request_id: str) -> anyio.Event:
        """Set once the request is decided through this server, however that comes about."""
        return self._decided.setdefault(request_id, anyio.Event())

    async def withdraw(self, request_id: str) -> None:
        """Take a question back that nobody answered; it stays on record."""
        await self._store.run(self._control.requests.withdraw, request_id)
        self._tell(request_id)

    async def spend(self, request_id: str) -> bool:
        """Use an approval up for the call that asked; true for exactly one caller."""
        return await self._store.run(self._control.requests.spend, request_id)

    def _tell(self, request_id: str) -> None:
        decided = self._decided.pop(request_id, None)
        if decided is not None:
            decided.set()

    async def set_rule(self, params: PermissionSetParams, caller: Caller) -> str:
        """Store a rule; its scope id defaults to the caller's project or session.

        Raises:
            InvalidParams: no such tool: a rule for it would never decide anything.
        """
        tool = params.tool if params.tool == "*" else REGISTRY.find(params.tool).name
        own = {"global": "", "project": caller.project_id, "conversation": caller.root_frame_id}[params.scope]
        if params.scope == "global" and params.scope_id:
            raise InvalidParams("a global rule has no scope_id", [Issue("$.scope_id", "must be empty for global")])
        return await self._store.run(
            self._control.rules.set,
            scope=params.scope,
            scope_id=params.scope_id or own,
            tool=tool,
            pattern=params.pattern,
            decision=params.decision,
        )

    async def remove_rule(self, rule_id: str) -> bool:
        """True if there was such a rule."""
        return await self._store.run(self._control.rules.remove, rule_id)

    async def pending(self) -> list[dict[str, Any]]:
        """Requests that nobody has decided, oldest first."""
        shown = ("request_id", "tool", "preview", "state", "door", "created_at", "expires_at")
        requests = await self._store.run(self._control.requests.pending)
        return [{name: getattr(request, name) for name in shown} for request in requests]

    async def resolve(
        self, request_id: str, decision: Literal["allow", "deny"], remember: Remember, caller: Caller
    ) -> Resolution:
        """Decide a request, and make the rule that remembers it.

        Raises:
            NotFound: no such request.
            InvalidParams: it is decided already.
        """
        resolution = await self._store.run(self._resolve, request_id, decision, remember, caller)
        self._tell(request_id)
        return resolution

    def _resolve(
        self, request_id: str, decision: Literal["allow", "deny"], remember: Remember, caller: Caller
    ) -> Resolution:
        request = self._control.requests.resolve(request_id, decision)
        if remember == "once":
            return Resolution(request.state)
        scope = _SCOPES[remember]
        project_id = self._project_of(request.root_frame_id, caller)
        rule_id = self._control.rules.set(
            scope=scope,
            scope_id={"global": "", "project": project_id, "conversation": request.root_frame_id}[scope],
            tool=request.tool,
            pattern=remembered_pattern(request.tool, request.target),
            decision=decision,
        )
        # The rule answers from now on: an approval left over would outlive its removal.
        self._control.requests.spend(request_id)
        return Resolution(request.state, rule_id)

    def _project_of(self, root_frame_id: str, caller: Caller) -> str:
        """The project of the session that asked; whoever answers may be in another by now."""
        known = self._projects.get(root_frame_id) or self._control.projects.of_frame(root_frame_id)
        return known or caller.project_id

    def _own_rules(self, root_frame_id: str) -> list[Rule]:
        return [
            Rule(
                rule_id=f"command-line-{number}",
                scope="conversation",
                scope_id=root_frame_id,
                tool=tool,
                pattern=pattern,
                decision=decision,
                created_at=0,
                updated_at=0,
            )
            for number, (tool, pattern, decision) in enumerate(self._own, start=1)
        ]


def remembered_pattern(tool: str, target: str) -> str:
    """The pattern of the rule that remembers a decision: this code and no other, or this path."""
    return code_pattern(target) if tool in CODE_TOOLS else literal_pattern(target)
