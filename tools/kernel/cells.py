"""A cell's own logs and interrupts, in a kernel that our launcher has started.

Stands alone as `launcher.py` does: standard library only, syntax of Python 3.9.
"""

from __future__ import annotations

from typing import Any

_LOOK_AGAIN_S = 0.003


def lead_cells(kernel: Any, host: Any) -> None:
    """Give a cell the logs and the name that its request brings along, and take the logs away at its end.

    In a kernel that goes on, descriptors 1 and 2 are a cell's own only while it runs: what a child of it prints later
    still goes to its logs, and what a thread prints between two cells goes nowhere.
    """
    import ctypes
    from inspect import isawaitable

    handle = kernel.shell_handlers["execute_request"]
    flush_native_streams = ctypes.CDLL(None).fflush
    output = Output()
    interrupts = Interrupts(kernel.shell)

    async def lead(stream: Any, ident: Any, request: Any) -> None:
        cell: Any = request["metadata"].get("cellhost")
        interrupts.begin()
        if cell:
            host.speak_for(cell["socket"], cell["token"], cell["exec_id"])
            output.give_to(cell["stdout"], cell["stderr"])
        try:
            handled = handle(stream, ident, request)
            if isawaitable(handled):
                await handled
        finally:
            flush_native_streams(None)  # C keeps back what it prints into a file
            if cell:
                output.take_back()
            interrupts.end()

    kernel.shell_handlers["execute_request"] = lead


class Output:
    """Descriptors 1 and 2. One more is held for opening logs: code may have taken all that there are."""

    def __init__(self) -> None:
        import os

        self._between = (os.dup(1), os.dup(2))
        self._spare: int | None = os.dup(1)

    def give_to(self, *logs: str) -> None:
        """Have 1 and 2 be these files."""
        import os

        for number, path in enumerate(logs, 1):
            if self._spare is not None:
                os.close(self._spare)
                self._spare = None
            log = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
            os.dup2(log, number, inheritable=True)
            os.dup2(self._between[0], log, inheritable=False)
            self._spare = log

    def take_back(self) -> None:
        """Have 1 and 2 be what they are between two cells."""
        import os

        for number, descriptor in enumerate(self._between, 1):
            os.dup2(descriptor, number, inheritable=True)


class Interrupts:
    """SIGINT reaches the code of a cell and nothing else.

    In the kernel's own work before and after the code it would cost the reply, and with it, in the end, the kernel:
    there it waits until the code runs, or is dropped with the cell's end.
    """

    def __init__(self, shell: Any) -> None:
        import os

        self._shell = shell
        self._process = os.getpid()
        self._cell = 0
        self._due: int | None = None  # the cell for which an interrupt is made again
        # Code that IPython calls after a cell (a plot is drawn there) may be interrupted too: it catches that itself.
        self._hooks: Any = shell.events.trigger.__func__.__code__

    def begin(self) -> None:
        """A cell begins."""
        import signal

        self._cell += 1
        signal.signal(signal.SIGINT, self._handle)

    def end(self) -> None:
        """It has ended; ipykernel puts the former handler back."""
        self._cell += 1

    def _handle(self, _number: int, frame: Any) -> None:
        import os
        import threading

        due, self._due = self._due, None
        if due not in (None, self._cell):
            return
        if self._is_of_code(frame) or os.getpid() != self._process:
            raise KeyboardInterrupt
        threading.Timer(_LOOK_AGAIN_S, self._make_again, [self._cell]).start()

    def _is_of_code(self, frame: Any) -> bool:
        while frame is not None:
            if frame.f_globals is self._shell.user_global_ns or frame.f_code is self._hooks:
                return True
            frame = frame.f_back
        return False

    def _make_again(self, cell: int) -> None:
        import signal
        import threading

        main = threading.main_thread().ident
        if cell == self._cell and main is not None:
            self._due = cell
            signal.pthread_kill(main, signal.SIGINT)
