"""The host: everything a call needs, and the one path every call takes, whatever door it came through.

normalise → validate → secret-path veto → permission gate → run → audit
"""

from __future__ import annotations

import difflib
import logging
import sqlite3
from contextlib import AsyncExitStack
from functools import cached_property, partial
from typing import TYPE_CHECKING, Any, ClassVar, ParamSpec, TypeVar

import anyio
import anyio.to_thread
import msgspec

from ..store.errors import HostError, InvalidParams, Issue, PermissionNeeded, UnknownMethod
from ..store.version import VERSION
from .audit import Audit, Entry
from .callbacks import CALLBACK_METHODS
from .changes import Changes
from .harness import HARNESS_METHODS
from .keeper import Keeper
from .normalise import normalise, validate
from .order import ResourceOrder
from .registry import REGISTRY
from .resources import RESOURCE_METHODS
from .rules import Subject, Verdict
from .session import Session
from .store_thread import StoreThread
from .tool import Tool
from .workspace import Workspace

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterable
    from pathlib import Path
    from types import TracebackType
    from typing import Self

    from anyio.abc import TaskStatus

    from .approval import Approvals, Ask
    from .call import Call, Caller, Door
    from .config import Config
    from .gate import Admission, Gate
    from .harness import PingResult
    from .jobs import Background, Executor
    from .kernel.spec import KernelFactory
    from .method import Method
    from .queries import Queries
    from .saving import Artifacts

logger = logging.getLogger(__name__)

P = ParamSpec("P")
T = TypeVar("T")

FILE_THREADS = 4
CLOSES_WITHIN_S = 5.0
MAX_SHOWN_NAME = 64
PROTOCOL = "1"
FEATURES = ("batch", "cancel", "mcp")


class Host:
    """One server's state.

    `async with` starts what needs kernels and background tasks; calls that need none of it work before that too.
    """

    CONFINEMENT: ClassVar[str] = "none"

    def __init__(self, config: Config, workspace: Path, kernel_factory: KernelFactory | None = None) -> None:
        self.config = config
        self.workspace = Workspace(workspace)
        self.store = StoreThread(config.data_folder, self.workspace.root)
        self.changes = Changes()
        self.session = Session(self.store, config, self.workspace.root, self.changes)
        self.audit = Audit(self.store, self.session)
        self.ending = anyio.Event()
        """Set when the host is about to end: whatever waits for news ends with what it has."""
        self.keeper = Keeper()
        self.methods = method_table()
        self.open_door: Callable[[], Awaitable[Path]] | None = None
        """Makes the socket that jobs call back through; set by whoever serves it."""
        self.asker: Callable[[], Ask | None] = lambda: None
        """How a job's calls reach a person now; set by whoever has a channel that can carry a question."""
        self._kernel_factory = kernel_factory
        self._order = ResourceOrder()
        self._file_threads = anyio.CapacityLimiter(FILE_THREADS)
        self._exit: AsyncExitStack | None = None

    # Hosts start servers just to look: what a first reply does not need is not imported before it is.

    @cached_property
    def gate(self) -> Gate:
        """Permission rules and requests."""

        from . import gate

        return gate.Gate(self.store, self.config.rules)

    @cached_property
    def approvals(self) -> Approvals:
        """Questions to a person."""
        from . import approval

        return approval.Approvals(self.gate)

    @cached_property
    def queries(self) -> Queries:
        """Guarded SQL."""

        from . import queries

        return queries.Queries(self.store, self.config, self.keeper)

    @cached_property
    def artifacts(self) -> Artifacts:
        """Saved versions."""

        from . import saving

        return saving.Artifacts(self)

    @cached_property
    def background(self) -> Background:
        """Background jobs."""
        from . import jobs

        return jobs.Background(self, self._kernel_factory)

    async def __aenter__(self) -> Self:
        """Open the host; raises `InvalidParams` for a configuration that cannot be."""
        self.config.check()
        async with AsyncExitStack() as stack:
            tasks = await stack.enter_async_context(anyio.create_task_group())
            tasks.cancel_scope.shield = True  # whoever is cancelled around us, jobs are ended and recorded in order
            stack.callback(tasks.cancel_scope.cancel)
            kept = anyio.Event()
            await tasks.start(self._keep, kept)
            stack.push_async_callback(self._let_go, kept)
            tasks.start_soon(self.audit.flush_forever)
            self._exit = stack.pop_all()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        assert self._exit is not None
        try:
            await self._exit.__aexit__(kind, error, trace)
        finally:
            with anyio.CancelScope(shield=True):
                await self.aclose()

    async def _keep(self, kept: anyio.Event, *, task_status: TaskStatus[None]) -> None:
        try:
            await self.keeper.serve(task_status=task_status)
        finally:
            kept.set()

    async def _let_go(self, kept: anyio.Event) -> None:
        self.keeper.stop()
        with anyio.move_on_after(CLOSES_WITHIN_S, shield=True):
            await kept.wait()

    async def aclose(self) -> None:
        """Write what waits and close the files; also for a host that was never entered."""
        if "background" in self.__dict__:
            await self.background.aclose()
        await self.store.run(self._write_and_close)

    def _write_and_close(self) -> None:
        try:
            self.audit.write_now()
        except HostError as error:
            logger.warning("the audit could not be written: %s", error)
        self.store.close()

    def end_waits(self) -> None:
        """Let every call that waits for a job or for news answer with what there is."""
        self.ending.set()
        if "background" in self.__dict__:
            self.background.end_waits()

    def kill_jobs(self) -> None:
        """End every kernel's process group at once, without waiting."""
        if "background" in self.__dict__:
            self.background.kill_all()

    async def executor(self, caller: Caller) -> Executor:
        """What the caller's job tools work on."""
        return await self.background.executor(caller)

    async def describe(self, caller: Caller) -> PingResult:
        """What `ping` answers."""
        return {
            "version": VERSION,
            "protocol": PROTOCOL,
            "sqlite": sqlite3.sqlite_version,
            "limits": msgspec.to_builtins(self.config.limits) | {"warm_kernels": self.config.warm_kernels},
            "features": list(FEATURES),
            "confinement": self.CONFINEMENT,
            "project_id": caller.project_id,
            "frame_id": caller.frame_id,
        }

    async def in_file_thread(self, function: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """Run blocking work on files in a thread that nothing else waits for."""
        return await anyio.to_thread.run_sync(partial(function, *args, **kwargs), limiter=self._file_threads)

    async def caller(self, door: Door) -> Caller:
        """The identity of a call that arrives through `door` now, recorded in the current frame."""
        return await self.session.caller(door)

    async def call(self, name: str, params: Any, call: Call) -> Any:
        """Carry one call through all its steps, in the order calls arrive.

        Nothing is awaited before the call has its place in the order, so whoever calls first comes first.

        Raises:
            HostError: whatever is wrong with the call, or went wrong while it ran.
        """
        entry = Entry(name, call)
        mutating = False
        try:
            method = self._method(name, call)
            mutating = method.mutating
            entry.side_effect_class = getattr(method, "side_effect_class", None)
            arguments = normalise(params, method.signature)
            entry.arguments = arguments.named
            typed = validate(arguments, method.signature)
            call.extra = arguments.extra
            return await self._run(method, arguments.named, typed, call, entry)
        except InvalidParams as error:
            entry.error_kind = error.kind
            raise _as_given(self._method(name, call), error) from error.__cause__
        except BaseException as error:
            entry.error_kind = error.kind if isinstance(error, HostError) else _kind_of_end(error)
            raise
        finally:
            await self._record(entry, mutating=mutating, wanted=name not in UNAUDITED)

    async def _run(
        self, method: Method[Any, Any], named: dict[str, Any], typed: msgspec.Struct, call: Call, entry: Entry
    ) -> Any:
        named = self._canonical(method, named)
        entry.keys = method.resource_keys(named)
        keys = entry.keys if method.ordered else ()
        turn = self._order.enter(keys, mutating=method.mutating, ahead=method.ahead)
        try:
            if call.identity is None:
                call.identity = await self.session.caller(call.door)
            if isinstance(method, Tool) and method.path_from_records:
                named = await self._with_recorded_path(method, named, typed, call.caller)
                entry.keys = method.resource_keys(named)
            if isinstance(method, Tool) and method.requires_approval:
                subject = _subject(method, named, call.caller)
                admission = await self.gate.admit(subject)
                while not admission.allowed:
                    self._order.leave(turn)
                    admission = await self._approved(method, typed, subject, call, entry)
                    turn = self._order.enter(keys, mutating=method.mutating, ahead=method.ahead)
                entry.request_id = admission.request_id
            if not turn.ready:
                with call.aside():
                    await turn.started()
            call.give_way = partial(self._order.leave, turn)
            return await method.run(typed, call)
        except PermissionNeeded as error:
            entry.request_id = error.data.get("request_id")
            raise
        finally:
            self._order.leave(turn)

    async def _approved(
        self, tool: Tool[Any, Any], typed: msgspec.Struct, subject: Subject, call: Call, entry: Entry
    ) -> Admission:
        """Ask a person, and look at the rules anew when the answer may stand there.

        Raises:
            PermissionNeeded: refused, or nobody there who could be asked.
        """
        preview = await tool.preview(typed, call)
        request_id = await self.gate.on_record(subject, call.caller, preview)
        from . import gate
        from .approval import nobody_to_ask, question_of

        ask = call.ask or (self.asker() if call.door == "kernel" else None)
        if ask is None:
            raise nobody_to_ask(subject, request_id)
        question = question_of(subject, request_id, preview, entry.keys, dangerous=tool.destructive)
        with call.waiting():
            if await self.approvals.obtain(question, ask, call.caller):
                return gate.Admission(allowed=True, request_id=request_id)
        return await self.gate.admit(subject)

    async def _record(self, entry: Entry, *, mutating: bool, wanted: bool) -> None:
        if not wanted:
            return
        if not mutating and self._exit is not None:
            self.audit.add(entry)
            return
        with anyio.CancelScope(shield=True):  # what was done is on record even if the caller has gone
            await self.audit.commit(entry)

    async def check_permission(self, name: str, arguments: dict[str, Any], caller: Caller) -> Verdict:
        """What would happen to a call of a tool: tools that need no approval are allowed.

        Raises:
            InvalidParams: the tool would refuse the arguments.
        """
        tool = REGISTRY.find(name)
        try:
            given = normalise(arguments, tool.signature)
            typed = validate(given, tool.signature)
            if not tool.requires_approval:
                return Verdict("allow")
            named = self._canonical(tool, given.named)
            if tool.path_from_records:
                named = await self._with_recorded_path(tool, named, typed, caller)
        except InvalidParams as error:
            raise _inside("$.arguments", _as_given(tool, error)) from None
        return await self.gate.check(_subject(tool, named, caller))

    def _method(self, name: str, call: Call) -> Method[Any, Any]:
        method = self.methods.get(name)
        if method is None or call.door not in method.doors:
            reachable = [known for known, other in self.methods.items() if call.door in other.doors]
            raise UnknownMethod(f"unknown method {shortened(name)}", hint=nearest_hint(name, reachable))
        return method

    def _canonical(self, method: Method[Any, Any], named: dict[str, Any]) -> dict[str, Any]:
        """Arguments as rules and keys see them: a path by its one name inside the workspace; vetoes happen here."""
        path = getattr(method, "path_parameter", None)
        if path is None or path not in named:
            return named
        changed = getattr(method, "side_effect_class", None) == "workspace_write"
        return named | {path: self.workspace.relative(named[path], changed=changed)}

    async def _with_recorded_path(
        self, tool: Tool[Any, Any], named: dict[str, Any], typed: msgspec.Struct, caller: Caller
    ) -> dict[str, Any]:
        path = await tool.recorded_path(typed, self, caller.project_id)
        return self._canonical(tool, named | {tool.path_parameter or "path": path})


_OTHERS = (*HARNESS_METHODS, *CALLBACK_METHODS, *RESOURCE_METHODS)


def method_table() -> dict[str, Method[Any, Any]]:
    """Every method by each of its names."""
    table: dict[str, Method[Any, Any]] = {method.name: method for method in _OTHERS}
    for tool in REGISTRY.tools.values():
        table |= {tool.name: tool, tool.host_method: tool}
    return table


UNAUDITED = frozenset(name for name, method in method_table().items() if not method.audited)


def _subject(tool: Tool[Any, Any], named: dict[str, Any], caller: Caller) -> Subject:
    return Subject(
        tool.name, tool.permission_target(named), tool.target_is_code, caller.project_id, caller.root_frame_id
    )


def _as_given(method: Method[Any, Any], error: InvalidParams) -> InvalidParams:
    """The same problems, those of a path that the records told by the parameter that led to it."""
    named_by = getattr(method, "path_named_by", None)
    if named_by is None:
        return error
    issues = [Issue(f"$.{named_by}", each.message) if each.path == "$.path" else each for each in error.issues]
    return InvalidParams(error.message, issues, hint=error.hint)


def _inside(path: str, error: InvalidParams) -> InvalidParams:
    """The same problems, of arguments that stand at `path` in another call's."""
    issues = [Issue(path + issue.path.removeprefix("$"), issue.message) for issue in error.issues]
    return InvalidParams(error.message, issues, hint=error.hint)


def nearest_hint(
    name: str, known: Iterable[str], otherwise: str = "tools/list or rpc.discover lists what there is"
) -> str:
    """The hint for a name that is none of the known ones."""
    nearest = difflib.get_close_matches(name[:MAX_SHOWN_NAME], known, n=1)
    return f"did you mean {nearest[0]}?" if nearest else otherwise


def shortened(name: str) -> str:
    """A name of the caller's as a message may show it."""
    return repr(name if len(name) <= MAX_SHOWN_NAME else name[:MAX_SHOWN_NAME] + "…")


def _kind_of_end(error: BaseException) -> str:
    return "cancelled" if not isinstance(error, Exception) else "internal"
