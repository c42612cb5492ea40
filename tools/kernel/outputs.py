"""What one job displays: figures, tables, HTML. Each is kept as an artifact version, and listed with where it came.

    outputs.take(message)        # from the kernel, never waits
    await outputs.run()          # the task that keeps them
    await outputs.settle()       # all are kept; after `close` nothing changes any more

An update takes the place of what it updates, and of updates that were not kept yet; so does what is displayed after
`clear_output`. The longer a job goes on updating, the further apart are the versions that are kept, and the last one
always is: their number grows with the logarithm of the time.
"""

from __future__ import annotations

import logging
import math
import time
from typing import TYPE_CHECKING, Any, cast

import anyio
import msgspec

from ...store.errors import HostError
from .log import Ends
from .records import JobOutput
from .representation import PLAIN, represent

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping

    from .channels import Message
    from .limits import JobLimits
    from .representation import Representation

_LOG = logging.getLogger(__name__)
POSITION = "cellhost_at"  # what our launcher adds to a message's metadata: the sizes of both logs
_UPDATE_EVERY_S = 0.5
_UPDATES_PER_AGE = 20


class _Place:
    """One place in the list: what is shown there, and what is to be."""

    def __init__(self, number: int, display_id: str | None, at: Ends, shown: JobOutput | None) -> None:
        self.number = number
        self.display_id = display_id
        self.at = at
        self.shown = shown
        self.waiting: Mapping[str, Any] | None = None  # as the kernel sent it


class JobOutputs:
    """The outputs of one job; `keep` stores a file and returns its version's id, `on_change` gets the new list."""

    def __init__(
        self,
        *,
        keep: Callable[[str, Representation], Awaitable[str]],
        sizes: Callable[[], Ends],
        on_change: Callable[[tuple[JobOutput, ...]], None],
        limits: JobLimits,
    ) -> None:
        self.revision = 0  # counts changes; part of every position in the job's output
        self._keep = keep
        self._sizes = sizes
        self._on_change = on_change
        self._limits = limits
        self._places: list[_Place] = []
        self._cleared: list[_Place] = []  # what stays to be seen until its successor is kept
        self._clear_next = False
        self._left_out = 0
        self._bytes = 0
        self._last_at = Ends(0, 0)
        self._kept_at: dict[int, tuple[float, float]] = {}  # the first and the last time, by place
        self._settling = False
        self._closed = False
        self._came = anyio.Event()
        self._went = anyio.Event()

    def take(self, message: Message) -> None:
        """Take in a message about something displayed."""
        if self._closed:
            return
        content = message.content
        if message.type == "clear_output":
            self._clear(wait=bool(content.get("wait")))
            return
        if message.type == "execute_result" and set(content["data"]) <= {PLAIN}:
            return  # that is the job's result
        display_id = cast("dict[str, Any]", content.get("transient") or {}).get("display_id")
        places = [place for place in self._places if display_id is not None and place.display_id == display_id]
        is_new = message.type != "update_display_data"
        if is_new and self._is_full():
            self._leave_out()
            is_new = False
        if not (is_new or places):
            return
        if is_new:
            places.append(self._new_place(display_id, self._position(message)))
        for place in places:
            place.waiting = content["data"]
        self._came.set()

    def _position(self, message: Message) -> Ends:
        """Where the logs were; never before an earlier output or beyond what there is."""
        sizes, last = self._sizes(), self._last_at
        try:
            out, err = msgspec.convert(message.metadata.get(POSITION), tuple[int, int])
        except msgspec.ValidationError:  # not a kernel of our launcher
            out, err = sizes.stdout, sizes.stderr
        out, err = min(out, sizes.stdout), min(err, sizes.stderr)
        self._last_at = Ends(max(out, last.stdout), max(err, last.stderr))
        return self._last_at

    def _clear(self, *, wait: bool) -> None:
        self._clear_next = wait
        if not wait:
            self._places, self._cleared, self._left_out = [], [], 0
            self._announce()

    def _is_full(self) -> bool:
        return len(self._places) >= self._limits.outputs and not self._clear_next

    def _leave_out(self) -> None:
        self._left_out += 1
        if self._left_out == 1:
            self._announce()

    def _new_place(self, display_id: str | None, at: Ends) -> _Place:
        if self._clear_next:
            self._cleared, self._places, self._left_out = self._places, [], 0
            self._clear_next = False
        count = len(self._places)
        shown = self._cleared[count].shown if count < len(self._cleared) else None
        place = _Place(count + 1, display_id, at, shown)
        self._places.append(place)
        return place

    async def run(self) -> None:
        """Keep what comes, one at a time, until `close`."""
        while not self._closed:
            place, due = self._next()
            wait_s = due - time.monotonic()
            if place is None or wait_s > 0:
                self._came = anyio.Event()
                with anyio.move_on_after(wait_s):
                    await self._came.wait()
                continue
            bundle = place.waiting
            assert bundle is not None
            output = await self._kept(place.number, represent(bundle))
            self._note_time(place.number)
            if place.waiting is bundle:
                place.waiting = None
            if not self._closed:
                self._show(place.number, output)
            self._went.set()
            self._went = anyio.Event()

    def _next(self) -> tuple[_Place | None, float]:
        """The place to be seen to next, and when."""
        waiting = [place for place in self._places if place.waiting is not None]
        if not waiting:
            return None, math.inf
        return min(((place, self._due(place.number)) for place in waiting), key=lambda each: each[1])

    def _due(self, number: int) -> float:
        if self._settling or number not in self._kept_at:
            return 0.0
        first, last = self._kept_at[number]
        return last + max(_UPDATE_EVERY_S, (last - first) / _UPDATES_PER_AGE)

    def _note_time(self, number: int) -> None:
        now = time.monotonic()
        first, _ = self._kept_at.get(number, (now, now))
        self._kept_at[number] = (first, now)

    async def _kept(self, number: int, representation: Representation) -> JobOutput:
        body, limits = representation.body, self._limits
        if body is None:
            return JobOutput(representation.mime, None, representation.text, "")
        if len(body) > limits.output_bytes:
            return _not_kept(representation, f"it is over {limits.output_bytes} bytes")
        if self._bytes + len(body) > limits.outputs_bytes:
            return _not_kept(representation, f"the job's outputs are over {limits.outputs_bytes} bytes together")
        try:
            version_id = await self._keep(f"{number}.{representation.ending}", representation)
        except HostError as error:
            return _not_kept(representation, str(error))
        except Exception:  # noqa: BLE001
            _LOG.exception("an output cannot be kept")
            return _not_kept(representation, "a fault of cellhost, which is in its log")
        self._bytes += len(body)
        return JobOutput(representation.mime, version_id, representation.text, "")

    def _show(self, number: int, output: JobOutput) -> None:
        """Show it in its place, even if that waits for its successor by now; not if that is gone."""
        if number <= len(self._places):
            place = self._places[number - 1]
            self.revision += 1
            at = msgspec.structs.replace(place.at, outputs=self.revision)
            place.shown = msgspec.structs.replace(output, at=str(at))
            self._announce()

    def _announce(self) -> None:
        shown = [place.shown for place in self._places if place.shown is not None]
        if self._left_out:
            note = f"[{self._left_out} further outputs were not kept: a job keeps {self._limits.outputs}]"
            shown.append(JobOutput(PLAIN, None, note, f"{self._last_at}.{self.revision}"))
        self._on_change(tuple(shown))

    async def settle(self) -> None:
        """Return once everything that came is kept; give it a bound."""
        self._settling = True
        self._came.set()
        while any(place.waiting is not None for place in self._places):
            await self._went.wait()

    def close(self) -> None:
        """End `run`; what could not be kept in time is listed all the same."""
        if self._closed:
            return
        for place in self._places:
            if place.waiting is not None:
                self._show(place.number, _not_kept(represent(place.waiting), "there was no time for it"))
        if self._left_out > 1:
            self._announce()
        self._closed = True
        self._places, self._cleared = [], []
        self._came.set()


def _not_kept(representation: Representation, why: str) -> JobOutput:
    note = f"[{representation.mime} was not kept: {why}]"
    text = f"{representation.text}\n{note}" if representation.text else note
    return JobOutput(representation.mime, None, text, "")
