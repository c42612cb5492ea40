"""Methods of the harness: who we are, frames, permissions. No agent and no job can call them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any, Literal, NotRequired, TypedDict

import msgspec
from msgspec import Meta

from .call import TRUSTED_DOORS
from .data import FrameState
from .method import Method

if TYPE_CHECKING:
    from .call import Call

Id = Annotated[str, Meta(min_length=1, max_length=256)]
ProjectId = Annotated[str, Meta(min_length=1, max_length=64, description="Project: [a-z0-9][a-z0-9._-]{0,63}.")]
FrameStatus = Annotated[FrameState, Meta(description="State of the frame.")]
ToolName = Annotated[str, Meta(min_length=1, max_length=64, description="Name of a tool, or * for all.")]


class NoParams(msgspec.Struct, frozen=True):
    pass


class PingResult(TypedDict):
    version: str
    protocol: str
    sqlite: str
    limits: dict[str, Any]
    features: list[str]
    confinement: str
    project_id: str
    frame_id: str


class Ping(Method[NoParams, PingResult]):
    name = "ping"
    description = "Tell version, limits, features and the current project and frame."
    doors = TRUSTED_DOORS
    audited = False
    ahead = True

    async def run(self, params: NoParams, call: Call) -> PingResult:
        del params
        return await call.host.describe(call.caller)


class FrameNewParams(msgspec.Struct, frozen=True):
    kind: Annotated[str, Meta(min_length=1, max_length=64, description="session, turn, …", examples=["turn"])]
    name: Annotated[str, Meta(max_length=1000, description="A name for people.")] | None = None
    project_id: ProjectId | None = None
    status: FrameStatus | None = None


class FrameId(TypedDict):
    frame_id: str


class FrameNew(Method[FrameNewParams, FrameId]):
    name = "frame_new"
    description = "Write a new frame below the current one and return its id; it does not become current (frame_use)."
    doors = TRUSTED_DOORS
    mutating = True

    async def run(self, params: FrameNewParams, call: Call) -> FrameId:
        frame_id = await call.host.session.new_frame(
            call.caller,
            kind=params.kind,
            name=params.name,
            project_id=params.project_id or call.caller.project_id,
            status=params.status or "ready",
        )
        return {"frame_id": frame_id}


class FrameUpdateParams(msgspec.Struct, frozen=True):
    frame_id: Annotated[Id, Meta(description="Frame to change.")]
    status: FrameStatus | None = None
    name: Annotated[str, Meta(max_length=1000, description="A name for people.")] | None = None
    task_summary: Annotated[str, Meta(max_length=10_000, description="What was done, in a sentence.")] | None = None


class FrameUpdate(Method[FrameUpdateParams, dict[str, Any]]):
    name = "frame_update"
    description = "Change a frame's status, name or summary and return the frame."
    doors = TRUSTED_DOORS
    mutating = True

    async def run(self, params: FrameUpdateParams, call: Call) -> dict[str, Any]:
        given = {
            name: value
            for name, value in msgspec.structs.asdict(params).items()
            if name != "frame_id" and value is not None
        }
        return await call.host.session.update_frame(call.caller, params.frame_id, given)


class FrameUseParams(msgspec.Struct, frozen=True):
    frame_id: Annotated[Id, Meta(description="Frame that later calls are recorded in.")]


class CurrentFrame(TypedDict):
    frame_id: str
    project_id: str


class FrameUse(Method[FrameUseParams, CurrentFrame]):
    name = "frame_use"
    description = "Record later calls in this frame, in its project."
    doors = TRUSTED_DOORS
    mutating = True

    async def run(self, params: FrameUseParams, call: Call) -> CurrentFrame:
        current = await call.host.session.use(params.frame_id)
        return {"frame_id": current.frame_id, "project_id": current.project_id}


class PermissionSetParams(msgspec.Struct, frozen=True):
    scope: Annotated[Literal["global", "project", "conversation"], Meta(description="Where the rule holds.")]
    tool: ToolName
    pattern: Annotated[
        str, Meta(min_length=1, max_length=200_000, description="Glob over the tool's target; * for all.")
    ]
    decision: Annotated[Literal["allow", "deny", "ask"], Meta(description="What happens to a matching call.")]
    scope_id: (
        Annotated[
            str, Meta(max_length=128, description="Project or root frame; default: this session's. Global: empty.")
        ]
        | None
    ) = None


class RuleId(TypedDict):
    rule_id: str


class PermissionSet(Method[PermissionSetParams, RuleId]):
    name = "permission_set"
    description = "Set a permission rule; the same scope, tool and pattern again replaces its decision."
    doors = TRUSTED_DOORS
    mutating = True

    async def run(self, params: PermissionSetParams, call: Call) -> RuleId:
        return {"rule_id": await call.host.gate.set_rule(params, call.caller)}


class PermissionListParams(msgspec.Struct, frozen=True):
    scope: Annotated[Literal["global", "project", "conversation"], Meta(description="Only this scope.")] | None = None
    tool: Annotated[str, Meta(max_length=64, description="Only rules that name this tool.")] | None = None


class PermissionList(Method[PermissionListParams, list[dict[str, Any]]]):
    name = "permission_list"
    description = "List permission rules, those of the command line included."
    doors = TRUSTED_DOORS

    async def run(self, params: PermissionListParams, call: Call) -> list[dict[str, Any]]:
        rules = await call.host.gate.rules(call.caller)
        return [
            msgspec.to_builtins(rule)
            for rule in rules
            if params.scope in (None, rule.scope) and params.tool in (None, rule.tool)
        ]


class PermissionRemoveParams(msgspec.Struct, frozen=True):
    rule_id: Annotated[Id, Meta(description="Rule to remove.")]


class Removed(TypedDict):
    removed: bool


class PermissionRemove(Method[PermissionRemoveParams, Removed]):
    name = "permission_remove"
    description = "Remove a permission rule."
    doors = TRUSTED_DOORS
    mutating = True

    async def run(self, params: PermissionRemoveParams, call: Call) -> Removed:
        return {"removed": await call.host.gate.remove_rule(params.rule_id)}


class PermissionCheckParams(msgspec.Struct, frozen=True):
    tool: ToolName
    arguments: Annotated[dict[str, Any], Meta(description="The arguments the tool would be called with.")]


class Checked(TypedDict):
    decision: Literal["allow", "deny", "ask"]
    rule_id: str | None


class PermissionCheck(Method[PermissionCheckParams, Checked]):
    name = "permission_check"
    description = "Tell what the rules would say of a call, without making it."
    doors = TRUSTED_DOORS

    async def run(self, params: PermissionCheckParams, call: Call) -> Checked:
        verdict = await call.host.check_permission(params.tool, params.arguments, call.caller)
        return {"decision": verdict.decision, "rule_id": verdict.rule_id}


class PermissionPending(Method[NoParams, list[dict[str, Any]]]):
    name = "permission_pending"
    description = "List requests for permission that nobody has decided."
    doors = TRUSTED_DOORS

    async def run(self, params: NoParams, call: Call) -> list[dict[str, Any]]:
        del params
        return await call.host.gate.pending()


class PermissionResolveParams(msgspec.Struct, frozen=True):
    request_id: Annotated[Id, Meta(description="Request to decide.")]
    decision: Annotated[Literal["allow", "deny"], Meta(description="What is decided.")]
    remember: (
        Annotated[
            Literal["once", "conversation", "project", "always"],
            Meta(description="once (default): the next identical call; else a rule for it of that scope."),
        ]
        | None
    ) = None


class Resolved(TypedDict):
    state: str
    rule_id: NotRequired[str | None]


class PermissionResolve(Method[PermissionResolveParams, Resolved]):
    name = "permission_resolve"
    description = "Decide a request for permission. Nothing runs by itself: the next identical call does."
    doors = TRUSTED_DOORS
    mutating = True

    async def run(self, params: PermissionResolveParams, call: Call) -> Resolved:
        resolved = await call.host.gate.resolve(
            params.request_id, params.decision, params.remember or "once", call.caller
        )
        return {"state": resolved.state, "rule_id": resolved.rule_id}


HARNESS_METHODS: tuple[Method[Any, Any], ...] = (
    Ping(),
    FrameNew(),
    FrameUpdate(),
    FrameUse(),
    PermissionSet(),
    PermissionList(),
    PermissionRemove(),
    PermissionCheck(),
    PermissionPending(),
    PermissionResolve(),
)
