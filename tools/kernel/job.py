"""One job of this server: its record, its logs, and the events that tell its stages.

`queued → starting → running → done | failed | interrupted | timeout | killed | died`. A record is replaced whole, so
that nobody ever sees a final status with fields that are not.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

import anyio
import msgspec

from .records import FINAL, PREVIEW_CHARS, JobRecord
from .text_view import TextViewer

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from .execution import Execution
    from .kernel import Kernel
    from .log import Ends, JobLog
    from .outputs import JobOutputs
    from .provisioner import Usage
    from .spec import Place

StopReason: TypeAlias = Literal["interrupt", "timeout", "shutdown"]
NewsKind: TypeAlias = Literal["status", "progress", "output", "outputs"]
STATUS_OF_STOP: Mapping[StopReason, str] = {
    "interrupt": "interrupted",
    "timeout": "timeout",
    "shutdown": "killed",
}


class Job:
    """State of one job; whoever changes it calls `change`, whoever waits for that awaits `changed`."""

    def __init__(
        self,
        record: JobRecord,
        log: JobLog,
        place: Place,
        outputs: JobOutputs,
        on_news: Callable[[Job, NewsKind], None],
    ) -> None:
        self.record = record
        self.log = log
        self.viewer = TextViewer(log)
        self.place = place
        self.outputs = outputs
        self.token: str | None = None
        self.kernel: Kernel | None = None
        self.execution: Execution | None = None
        self.ends: Ends | None = None  # where the logs end for good
        self.stop_reason: StopReason | None = None
        self.stop_step = "cancel"
        self.stop_requested = anyio.Event()
        self.given_up = anyio.Event()  # not even SIGKILL ended the process within its time
        self.over = anyio.Event()  # the outcome is known: no further signal
        self.finished = anyio.Event()  # and everybody may see it
        self.changed = anyio.Event()
        self.progress_noted_at = 0
        self.progress_waits = False  # to be noted
        self.version = 0  # counts changes of anything but output
        self._on_news = on_news

    @property
    def exec_id(self) -> str:
        """The job's id."""
        return self.record.exec_id

    @property
    def done(self) -> bool:
        """Whether the status is final."""
        return self.record.status in FINAL

    @property
    def interrupted(self) -> bool:
        """Whether somebody interrupted it."""
        return self.stop_reason == "interrupt"

    def current_ends(self) -> Ends:
        """Bytes in the logs, and the count of changes of the outputs."""
        return self.ends or msgspec.structs.replace(self.log.sizes(), outputs=self.outputs.revision)

    def usage(self) -> Usage | None:
        """What the running process has used."""
        return None if self.kernel is None or self.done else self.kernel.usage()

    def change(self, fields: Mapping[str, Any], kind: NewsKind = "status") -> None:
        """Replace fields of the record and tell whoever waits."""
        self.record = msgspec.structs.replace(self.record, **fields)
        self.version += 1
        if self.done and not self.finished.is_set():
            self.record = msgspec.structs.replace(self.record, code=self.record.code[:PREVIEW_CHARS])
            self.kernel = self.execution = None
            self.finished.set()
        self.tell(kind)

    def tell(self, kind: NewsKind) -> None:
        """Wake whoever waits for news of this job."""
        self.changed.set()
        self.changed = anyio.Event()
        self._on_news(self, kind)


def now_ms() -> int:
    """Epoch milliseconds."""
    return time.time_ns() // 1_000_000
