"""The session: which project and frame calls are recorded in.

A server continues its workspace's root frame, so that yesterday's versions are still there today. Nothing is written
before the first call that records something: hosts start servers just to look.
"""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING, Any

import msgspec

from ..store.errors import HostError, NotFound
from ..store.ids import check_project_id, new_id
from .call import Caller
from .changes import Change

if TYPE_CHECKING:
    from pathlib import Path

    from .call import Door
    from .changes import Changes
    from .config import Config
    from .store_thread import StoreThread


class Current(msgspec.Struct, frozen=True):
    """Where calls are recorded now."""

    project_id: str
    root_frame_id: str
    frame_id: str


class Session:
    """The current frame of one server, found or begun on first use."""

    def __init__(self, store: StoreThread, config: Config, workspace: Path, changes: Changes) -> None:
        self._store = store
        self._changes = changes
        self._config = config
        self._workspace = str(workspace)
        self._current: Current | None = None
        self._begun: Current | None = None
        self._written: set[str] = set()

    async def caller(self, door: Door) -> Caller:
        """The identity of a call that comes in through `door` now."""
        current = self._current
        if current is None:
            current = await self._store.run(self.open_now)
        return Caller(door, current.project_id, current.root_frame_id, current.frame_id)

    def known(self, door: Door) -> Caller | None:
        """As `caller`, as far as that is known without looking."""
        current = self._current
        if current is None:
            return None
        return Caller(door, current.project_id, current.root_frame_id, current.frame_id)

    def look(self, door: Door) -> Caller | None:
        """As `caller`, blocking; nobody's where no session can be found or begun."""
        with suppress(HostError):
            self.open_now()
        return self.known(door)

    def open_now(self) -> Current:
        """The current frame, found or begun; blocking."""
        current = self._current or self._first()
        self._current = current
        return current

    def _first(self) -> Current:
        project_id = check_project_id(self._config.project_id)
        if self._config.frame_id is not None:
            return self._find(self._config.frame_id)
        root = None if self._config.new_session else self._continued(project_id)
        frame_id = root or new_id("f")
        self._begun = Current(project_id, frame_id, frame_id)
        return self._begun

    def _continued(self, project_id: str) -> str | None:
        if not self._store.exists():  # looking makes no files
            return None
        return self._store.store.control.sessions.continue_session(self._workspace, project_id)

    async def use(self, frame_id: str) -> Current:
        """Make an existing frame the current one, in its project.

        Raises:
            NotFound: no such frame.
        """
        return await self._store.run(self.use_now, frame_id)

    def use_now(self, frame_id: str) -> Current:
        """As `use`, blocking: for Python that embeds us and sets `dispatcher.frame_id`."""
        self._current = self._find(frame_id)
        return self._current

    def _find(self, frame_id: str) -> Current:
        store = self._store.store
        project_id = store.find_frame_project(frame_id)
        if project_id is None:
            if self._begun is not None and self._begun.frame_id == frame_id:
                return self._begun  # told to callers, and not written before something is recorded in it
            raise NotFound("no such frame", hint="frames lists them; frame_new makes one")
        frame = store.project(project_id).frames.get(frame_id)
        return Current(project_id, frame.root_frame_id, frame_id)

    async def new_frame(self, caller: Caller, *, kind: str, name: str | None, project_id: str, status: str) -> str:
        """Write a frame: a child of the current one in its own project, a root in another."""
        same_project = project_id == caller.project_id
        if same_project:
            await self.ensure_written(caller)
        frame_id = await self._store.run(
            self._store.store.new_frame,
            kind=kind,
            project_id=project_id,
            status=status,
            name=name,
            parent_id=caller.frame_id if same_project else None,
            workspace=self._workspace,
        )
        self._changes.publish(Change(project_id, "frame", frame_id))
        if same_project:  # it is one of that one's children
            self._changes.publish(Change(project_id, "cells", caller.frame_id))
        return frame_id

    async def update_frame(self, caller: Caller, frame_id: str, given: dict[str, Any]) -> dict[str, Any]:
        """Change a frame of the caller's project and return it."""
        if frame_id == caller.frame_id:
            await self.ensure_written(caller)
        records = await self._store.project(caller.project_id)
        frame = await self._store.run(records.frames.update, frame_id, **given)
        self._changes.publish(Change(caller.project_id, "frame", frame_id))
        if frame.parent_id is not None:
            self._changes.publish(Change(caller.project_id, "cells", frame.parent_id))
        return msgspec.structs.asdict(frame)

    async def ensure_written(self, caller: Caller) -> None:
        """Write the caller's root frame and session if no call has yet, or `cellhost forget` removed them."""
        if await self._store.run(self._write_root, caller):
            self._changes.publish(Change(caller.project_id, "frame", caller.root_frame_id))

    def _write_root(self, caller: Caller) -> bool:
        """Whether there was none."""
        store = self._store.store
        root = caller.root_frame_id
        there = store.find_frame_project(root) is not None
        if there and root in self._written:
            return False
        if not there:
            store.new_frame(
                kind="session",
                project_id=caller.project_id,
                frame_id=root,
                workspace=self._workspace,
                status="processing",
            )
        store.control.sessions.start_session(root, caller.project_id, self._workspace)
        self._written.add(root)
        return not there
