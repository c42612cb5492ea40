"""Tools that run Python in the background and watch it."""

from __future__ import annotations

from contextlib import asynccontextmanager, suppress
from typing import TYPE_CHECKING, Annotated, Any, Literal, NotRequired, TypedDict, cast

import anyio
import msgspec
from msgspec import Meta

from ..store.errors import HostError, InvalidParams, Issue
from .budget import page_within, shortened
from .outputs import add_images, newest
from .tool import Tool, resource_key

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Mapping

    from .call import Call

ExecId = Annotated[str, Meta(min_length=1, max_length=256, description="Id of a job.", examples=["exec-0123456789ab"])]
Since = Annotated[
    str,
    Meta(max_length=1000, description='`next` of the last answer: return only what is new since. "0": from the start.'),
]
GO_ON = 'since: "0" for all that was printed, then the answer\'s next; a long result or error: query the jobs table'
_OUTPUT = ("stdout", "stderr")
_FOR_OUTPUTS = 4  # the share of a budget that the list of outputs may take
_LONG = 2000
"""Characters of an error's or result's text over a door with a budget."""

JobState = Literal[
    "queued", "starting", "running", "done", "failed", "interrupted", "timeout", "killed", "died", "lost"
]


class Progress(TypedDict):
    done: float
    total: float | None
    message: str | None


class Launched(TypedDict):
    exec_id: str
    status: str


class ExecBackgroundParams(msgspec.Struct, frozen=True):
    code: Annotated[
        str,
        Meta(
            min_length=1,
            max_length=200_000,
            description="Python to run in a fresh Jupyter kernel, with the workspace as its working folder.",
            examples=["import time\nfor i in range(3):\n    print(i)\n    time.sleep(1)"],
        ),
    ]
    label: Annotated[str, Meta(max_length=200, description="A short name for people.")] | None = None
    timeout_s: (
        Annotated[float, Meta(gt=0, le=2_592_000, description="End the job after this many seconds (default: never).")]
        | None
    ) = None
    memory_mb: (
        Annotated[int, Meta(ge=16, le=1_048_576, description="Memory the job may use, in MiB (default: no limit).")]
        | None
    ) = None
    kernel: (
        Annotated[
            str | dict[str, Any],
            Meta(
                description='Another interpreter than kernel_info shows: {"python": path}, relative to the workspace '
                "or absolute, of an environment with ipykernel. Or the name of a Jupyter kernel that kernel_info "
                "lists; the code is then in its language, and has no `host`.",
                examples=[{"python": ".venv/bin/python"}, "bash"],
            ),
        ]
        | None
    ) = None
    env: (
        Annotated[
            dict[str, str],
            Meta(
                max_length=200,
                description="Further environment variables of the job; none named like a secret.",
                examples=[{"DATASET": "2024"}],
            ),
        ]
        | None
    ) = None
    key: (
        Annotated[
            str,
            Meta(
                min_length=1,
                max_length=200,
                description="Idempotency key: a second call with it starts nothing, and answers with the first's job.",
            ),
        ]
        | None
    ) = None


class SubmitBackgroundExecTool(Tool[ExecBackgroundParams, Launched]):
    name = "exec_background"
    title = "Start a background job"
    description = (
        "Start Python code as a background job and return at once with its exec_id. Look at it with exec_peek, wait "
        "with exec_wait, stop it with exec_interrupt. Each job has a fresh Python process: nothing is left of earlier "
        "ones but their files. `host` is there without an import and calls back: host.query(sql), host.progress(done, "
        "total), host.save_artifact(path), host.read_file(path), …. Files are read and written relative to the "
        "workspace. What is printed and the value of the last expression are kept; figures (matplotlib needs no "
        "set-up), tables and HTML that are displayed become artifacts, listed in `outputs`. The bars of tqdm are the "
        "job's progress. Needs approval unless a rule allows it."
    )
    read_only = False
    requires_approval = True
    side_effect_class = "runtime_mutation"
    destructive = True
    target_is_code = True

    def permission_target(self, arguments: Mapping[str, Any]) -> str:
        return cast("str", arguments["code"])

    def resource_keys(self, arguments: Mapping[str, Any]) -> tuple[str, ...]:
        del arguments
        return ("background:jobs",)

    async def run(self, params: ExecBackgroundParams, call: Call) -> Launched:
        given = _given(params, leave_out=("code",))
        executor = await call.host.executor(call.caller)
        return cast("Launched", await executor.launch(params.code, origin=origin_of(call), **given))


class JobRow(TypedDict):
    exec_id: str
    label: NotRequired[str | None]
    status: str
    done: NotRequired[bool]
    started_at: NotRequired[int | None]
    ended_at: NotRequired[int | None]
    stdout_bytes: NotRequired[int]
    stderr_bytes: NotRequired[int]
    progress: NotRequired[Progress | None]
    code_preview: NotRequired[str]
    session: NotRequired[str]
    note: NotRequired[str]


class ExecListParams(msgspec.Struct, frozen=True):
    status: Annotated[JobState, Meta(description="Only jobs of this status.")] | None = None
    limit: Annotated[int, Meta(ge=1, le=1000, description="Jobs an answer (default 50).")] | None = None
    cursor: Annotated[str, Meta(max_length=256, description="exec_id of the last row, to go on after it.")] | None = (
        None
    )


class ListBackgroundExecsTool(Tool[ExecListParams, list[JobRow]]):
    name = "exec_list"
    title = "List jobs"
    description = (
        "List this project's jobs and exec's cells, newest first, without their output: status, times (epoch ms), "
        "sizes of the output, progress, how the code begins; of a cell its session too. Those of earlier servers are "
        "there."
    )
    bare_when_empty = True
    ahead = True
    go_on = "cursor: the exec_id of the last row"

    def resource_keys(self, arguments: Mapping[str, Any]) -> tuple[str, ...]:
        del arguments
        return ("background:jobs",)

    async def run(self, params: ExecListParams, call: Call) -> list[JobRow]:
        return cast("list[JobRow]", await (await call.host.executor(call.caller)).list_jobs(**_given(params)))


class Outcome(TypedDict):
    """A job as `exec_peek` shows it; once `done` is true nothing in it changes."""

    exec_id: str
    status: str
    done: NotRequired[bool]
    stdout: NotRequired[str]
    stderr: NotRequired[str]
    interrupted: NotRequired[bool]
    error: NotRequired[dict[str, Any] | None]
    result: NotRequired[str | None]
    outputs: NotRequired[list[dict[str, Any]]]
    progress: NotRequired[Progress | None]
    exit: NotRequired[dict[str, Any] | None]
    started_at: NotRequired[int | None]
    ended_at: NotRequired[int | None]
    label: NotRequired[str | None]
    next: NotRequired[str]
    truncated: NotRequired[bool]
    dropped_chars: NotRequired[int]
    usage: NotRequired[dict[str, Any] | None]
    session: NotRequired[str]
    note: NotRequired[str]


class ExecPeekParams(msgspec.Struct, frozen=True):
    exec_id: ExecId
    since: Since | None = None
    max_chars: (
        Annotated[int, Meta(ge=1, le=1_000_000, description="Characters of output at most (default 1,000,000).")] | None
    ) = None
    stream: (
        Annotated[Literal["stdout", "stderr", "both"], Meta(description="Which output to return (default both).")]
        | None
    ) = None


class PeekBackgroundExecTool(Tool[ExecPeekParams, Outcome]):
    name = "exec_peek"
    title = "Look at a job"
    description = (
        "Show a job as it is now: status, output so far, error, result, progress. Never waits. Without `since` "
        'the output is shown whole (head and tail when long); with `since` set to the last answer\'s `next` ("0" to '
        "begin with), only what is new."
    )
    bare = "exec_id"
    ahead = True
    go_on = GO_ON

    def resource_keys(self, arguments: Mapping[str, Any]) -> tuple[str, ...]:
        return (resource_key("background_exec", arguments["exec_id"]),)

    async def run(self, params: ExecPeekParams, call: Call) -> Outcome:
        return await _shown(params.exec_id, call, **_given(params, leave_out=("exec_id",)))


class ExecWaitParams(msgspec.Struct, frozen=True):
    exec_id: ExecId
    timeout_s: Annotated[float, Meta(ge=0, le=600, description="Seconds to wait at most (default 30).")] | None = None
    since: Since | None = None
    until: (
        Annotated[
            Literal["news", "done"],
            Meta(description="done (default): until the job ends; news: until it starts, prints, progresses or ends."),
        ]
        | None
    ) = None


class WaitBackgroundExecTool(Tool[ExecWaitParams, Outcome]):
    name = "exec_wait"
    title = "Wait for a job"
    description = (
        "Wait until a job ends (or has news), at most timeout_s seconds, then show it as exec_peek does. An answer "
        "with done: false means that the time ran out and the job goes on: wait again, or do something else meanwhile."
    )

    ordered = False
    go_on = GO_ON

    def resource_keys(self, arguments: Mapping[str, Any]) -> tuple[str, ...]:
        return (resource_key("background_exec", arguments["exec_id"]),)

    async def run(self, params: ExecWaitParams, call: Call) -> Outcome:
        if params.exec_id == call.caller.exec_id:
            raise InvalidParams(
                "a job cannot wait for itself", [Issue("$.exec_id", "is the job that asks")], hint="wait for another"
            )
        with call.waiting():
            return await wait_and_show(params.exec_id, call, **_given(params, leave_out=("exec_id",)))


class ExecInterruptParams(msgspec.Struct, frozen=True):
    exec_id: ExecId


class InterruptBackgroundExecTool(Tool[ExecInterruptParams, Outcome]):
    name = "exec_interrupt"
    title = "Stop a job"
    description = (
        "Stop a job: it is interrupted as by Ctrl-C, and ended by force when it does not react. Answers once the "
        "signal is sent; a job that has ended stays as it is. Needs no approval."
    )
    read_only = False
    side_effect_class = "runtime_mutation"
    idempotent = True
    destructive = True
    bare = "exec_id"
    go_on = GO_ON
    ahead = True
    ordered = False

    def resource_keys(self, arguments: Mapping[str, Any]) -> tuple[str, ...]:
        return (resource_key("background_exec", arguments["exec_id"]),)

    async def run(self, params: ExecInterruptParams, call: Call) -> Outcome:
        outcome = await (await call.host.executor(call.caller)).interrupt(params.exec_id)
        return cast("Outcome", outcome) if call.budget is None else await _shown(params.exec_id, call)


@asynccontextmanager
async def _reporting(exec_id: str, call: Call) -> AsyncGenerator[None]:
    """Report a job's progress meanwhile, if the caller asked for it; an error of the block passes as it is."""
    report = call.progress
    if report is None:
        yield
        return

    async def follow() -> None:
        with suppress(HostError):  # what cannot be followed is still waited for
            await call.host.background.follow(call.caller, exec_id, report)

    failure: HostError | None = None
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(follow)
        try:
            yield
        except HostError as error:  # a task group would wrap it
            failure = error
        tasks.cancel_scope.cancel()
    if failure is not None:
        raise failure


def _given(params: msgspec.Struct, leave_out: tuple[str, ...] = ()) -> dict[str, Any]:
    """The arguments the caller gave, for executors that know only some of them."""
    return {
        name: value
        for name, value in msgspec.structs.asdict(params).items()
        if value is not None and name not in leave_out
    }


def origin_of(call: Call) -> str:
    """Who asks for code to be run: a label for the records; nothing depends on it."""
    return str((call.caller.trusted and call.extra.get("origin")) or "agent")[:64]


async def wait_and_show(exec_id: str, call: Call, **given: Any) -> Outcome:
    """A job as `exec_wait` shows it, with that tool's arguments, its progress reported meanwhile."""
    executor = await call.host.executor(call.caller)
    briefly = {} if call.budget is None else {"max_chars": 1}
    async with _reporting(exec_id, call):
        outcome = await executor.wait(exec_id, **given | briefly)
    progress = outcome.get("progress")
    if call.progress is not None and progress is not None:  # the last of it may not have been followed any more
        call.progress(progress["done"], progress["total"], progress["message"])
    if call.budget is None:
        return cast("Outcome", outcome)
    return await _shown(exec_id, call, **{name: given[name] for name in given.keys() & {"since"}})


async def _shown(exec_id: str, call: Call, **given: Any) -> Outcome:
    """A job as `exec_peek` shows it, within the door's budget.

    Error and result are cut first, then there is as much output as fits: text that `next` has passed is never cut.
    """
    executor = await call.host.executor(call.caller)
    budget = call.budget
    if budget is None:
        return cast("Outcome", await executor.peek(exec_id, **given))

    async def page(max_chars: int) -> dict[str, Any]:
        outcome: dict[str, Any] = await executor.peek(exec_id, **given | {"max_chars": max_chars})
        if outcome.get("outputs"):
            outcome["outputs"] = newest(outcome["outputs"], exec_id, most_chars=budget // _FOR_OUTPUTS)
        rest = {name: value for name, value in outcome.items() if name not in _OUTPUT}
        short: dict[str, Any] = shortened(rest, _LONG)
        if short != rest and "since" not in given:  # with it, `truncated` says that there is more output to get
            short["truncated"] = True
        return outcome | short

    outcome = await page_within(call, min(given.get("max_chars", budget), budget), page)
    await add_images(outcome.get("outputs") or (), given.get("since"), call)
    return cast("Outcome", outcome)
