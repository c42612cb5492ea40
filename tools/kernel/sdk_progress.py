"""How far a job is: what it reports itself, and what the bars of tqdm say without knowing of us.

tqdm is never imported here. Once the job imports it, its bars report whenever they draw themselves; of several, the
one that was there first. A job that reports by itself is not overruled. Stands alone, as `sdk.py` does.
"""

from __future__ import annotations

import contextlib
import importlib.util
import math
import os
import sys
import threading
import time
import weakref
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable

    from .sdk_wire import Pool

EVERY_S = 0.05
_TQDM = "tqdm.std"


class Progress:
    """Sends the newest report, at most twenty a second."""

    def __init__(self, pool: Pool) -> None:
        self._pool = pool
        self._lock = threading.Lock()
        self._sent_at = 0.0
        self._waiting: dict[str, Any] | None = None
        self.followed = False  # the bars of tqdm report here
        self._start_with_cell()
        os.register_at_fork(after_in_child=self._start_over)

    def _start_over(self) -> None:
        self._lock = threading.Lock()
        self._waiting = None

    def _start_with_cell(self) -> None:
        self.reported = False  # the job did so by itself
        self.bar: Callable[[], Any] = _nothing  # the one that speaks for it else

    def drop(self) -> None:
        """Forget what was about a cell that has ended: the report that waits, and the bar it came from."""
        with self._lock:
            self._waiting = None
            self._start_with_cell()

    def report(self, report: dict[str, Any]) -> None:
        """Send a report now, or within 50 ms unless a newer one comes; one that is complete is always sent."""
        self.reported = True
        complete = report.get("total") is not None and report["done"] >= report["total"]
        self.offer(report, now=complete)

    def offer(self, report: dict[str, Any], *, now: bool = False) -> None:
        """Send a report when its time has come, or now."""
        with self._lock:
            due = self._sent_at + EVERY_S - time.monotonic()
            if due > 0 and not now:
                if self._waiting is None:
                    timer = threading.Timer(due, self.flush)
                    timer.daemon = True
                    timer.start()
                self._waiting = report
                return
            self._waiting = None
            self._sent_at = time.monotonic()
        self._pool.call("progress", [report])

    def flush(self) -> None:
        """Send the report that waits; nobody is there to be told if that fails."""
        with self._lock:
            report, self._waiting = self._waiting, None
            self._sent_at = time.monotonic()
        if report is not None:
            with contextlib.suppress(RuntimeError, OSError):
                self._pool.call("progress", [report])


def follow_tqdm(progress: Progress) -> None:
    """Have the bars of tqdm report to `progress`, once there are any; a second time changes nothing."""
    if progress.followed:
        return
    progress.followed = True
    follow = _Bars(progress).follow
    if _TQDM in sys.modules:
        _attach(sys.modules[_TQDM], follow)
    else:
        sys.meta_path.insert(0, _OnImport(follow))


class _Bars:
    """Picks the bar that speaks for the job; whatever goes wrong here is not the job's fault and must not end it."""

    def __init__(self, progress: Progress) -> None:
        self._progress = progress
        self._process = os.getpid()

    def follow(self, bar: Any, *, over: bool = False) -> None:
        """Note that a bar has drawn itself, or will not any more."""
        with contextlib.suppress(Exception):
            if os.getpid() != self._process or self._progress.reported:
                return
            current = self._progress.bar()
            if current is None and not over:
                self._progress.bar, current = weakref.ref(bar), bar
            if current is bar:
                if over:
                    self._progress.bar = _nothing
                self._progress.offer(_report_of(bar))


def _nothing() -> None:
    return None


def _report_of(bar: Any) -> dict[str, Any]:
    report: dict[str, Any] = {"done": _number(bar.n)}
    if bar.total is not None:
        report["total"] = _number(bar.total)
    parts = [(bar.desc or "").rstrip(": "), getattr(bar, "postfix", None) or ""]
    message = ", ".join(str(part) for part in parts if part)
    if message:
        report["message"] = message[:500]
    return report


def _number(value: Any) -> float:
    number = value if type(value) is int else float(value)
    if not math.isfinite(number):
        raise ValueError
    return number


class _OnImport:
    """A finder that finds nothing by itself, and attaches to tqdm's bars when their module has been run."""

    def __init__(self, follow: Callable[..., None]) -> None:
        self._follow = follow
        self._asking = False

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> Any:  # noqa: ARG002 - the protocol's
        if name != _TQDM or self._asking:
            return None
        self._asking = True
        try:
            spec = importlib.util.find_spec(name)
        finally:
            self._asking = False
        if spec is not None and spec.loader is not None:
            self._run_then_attach(spec.loader)
        return spec

    def _run_then_attach(self, loader: Any) -> None:
        run = loader.exec_module

        def run_then_attach(module: Any) -> None:
            run(module)
            with contextlib.suppress(ValueError):
                sys.meta_path.remove(self)
            _attach(module, self._follow)

        loader.exec_module = run_then_attach


def _attach(module: Any, follow: Callable[..., None]) -> None:
    """Wrap the two methods of a bar that every kind of it comes through."""
    with contextlib.suppress(AttributeError):
        bar = module.tqdm
        refresh, close = bar.refresh, bar.close

        def followed_refresh(self: Any, *args: Any, **given: Any) -> Any:
            result = refresh(self, *args, **given)
            if not self.disable:
                follow(self)
            return result

        def followed_close(self: Any) -> None:
            if not getattr(self, "disable", True):
                follow(self, over=True)
            close(self)

        bar.refresh, bar.close = followed_refresh, followed_close
