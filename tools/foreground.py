"""Tools that run Python cells in a kernel that keeps its state from one to the next."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any, TypedDict, cast

import anyio
import msgspec
from msgspec import Meta

from .background import GO_ON, Outcome, origin_of, wait_and_show
from .tool import Tool, resource_key

if TYPE_CHECKING:
    from collections.abc import Mapping

    from .call import Call

DEFAULT_SESSION = "default"
YIELD_AFTER_S = 20.0

Session = Annotated[
    str,
    Meta(
        min_length=1,
        max_length=100,
        description='Name of the session whose kernel is meant (default "default"); each name has a kernel of its own.',
        examples=["analysis"],
    ),
]


class ExecParams(msgspec.Struct, frozen=True):
    code: Annotated[
        str,
        Meta(
            min_length=1,
            max_length=200_000,
            description="Python to run as the session's next cell, with the workspace as its working folder.",
            examples=["rows = host.query('SELECT 1 AS a')\nlen(rows)"],
        ),
    ]
    session: Session | None = None
    yield_after_s: (
        Annotated[
            float,
            Meta(ge=0, le=600, description="Seconds to wait for the cell before it goes on as a job (default 20)."),
        ]
        | None
    ) = None


class ExecTool(Tool[ExecParams, Outcome]):
    name = "exec"
    title = "Run a cell"
    description = (
        "Run Python as the next cell of the session's kernel and answer with what it printed and displayed, as "
        "exec_peek does. Variables and imports stay for the session's later cells; cells of one session run one "
        "after the other. For short steps that build on each other; use exec_background for what runs long or side "
        "by side. A cell that takes longer than yield_after_s goes on as a job: the answer has done: false and its "
        "exec_id, for exec_wait and exec_interrupt (an interrupt keeps the variables if the code reacts to it). An "
        "answer with a note says that the earlier cells' variables are gone. Needs approval unless a rule allows it."
    )
    read_only = False
    requires_approval = True
    side_effect_class = "runtime_mutation"
    destructive = True
    target_is_code = True
    go_on = f"exec_peek with {GO_ON}"

    def permission_target(self, arguments: Mapping[str, Any]) -> str:
        return cast("str", arguments["code"])

    def resource_keys(self, arguments: Mapping[str, Any]) -> tuple[str, ...]:
        return (resource_key("kernel", arguments.get("session") or DEFAULT_SESSION),)

    async def run(self, params: ExecParams, call: Call) -> Outcome:
        executor = await call.host.executor(call.caller)
        given: dict[str, Any] = {} if call.caller.exec_id is None else {"caller": call.caller.exec_id}
        session = params.session or DEFAULT_SESSION
        with call.waiting():  # before the cell is there: a door that can have no more waiting calls refuses here
            started = await executor.execute(params.code, session=session, origin=origin_of(call), **given)
            call.give_way()  # it has its place among the session's cells
            try:
                yield_after_s = YIELD_AFTER_S if params.yield_after_s is None else params.yield_after_s
                return await wait_and_show(started["exec_id"], call, timeout_s=yield_after_s)
            except anyio.get_cancelled_exc_class():
                with anyio.CancelScope(shield=True):  # nobody may be left who knows its exec_id
                    await executor.interrupt(started["exec_id"])
                raise


class Restarted(TypedDict):
    session: str
    restarted: bool
    ended: list[str]


class ExecRestartParams(msgspec.Struct, frozen=True):
    session: Session | None = None


class ExecRestartTool(Tool[ExecRestartParams, Restarted]):
    name = "exec_restart"
    title = "Restart a session's kernel"
    description = (
        "End the session's kernel, with the cells that run or wait in it (`ended` names them) and all variables: the "
        "session's next exec begins in a fresh one. `restarted` is false when there was no kernel. To stop one cell "
        "and keep the variables, use exec_interrupt. Needs approval unless a rule allows it."
    )
    read_only = False
    requires_approval = True
    side_effect_class = "runtime_mutation"
    idempotent = True
    destructive = True

    def permission_target(self, arguments: Mapping[str, Any]) -> str:
        return arguments.get("session") or DEFAULT_SESSION

    def resource_keys(self, arguments: Mapping[str, Any]) -> tuple[str, ...]:
        return (resource_key("kernel", self.permission_target(arguments)),)

    async def run(self, params: ExecRestartParams, call: Call) -> Restarted:
        executor = await call.host.executor(call.caller)
        return cast("Restarted", await executor.restart(params.session or DEFAULT_SESSION))
