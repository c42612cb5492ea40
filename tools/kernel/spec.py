"""Everything a kernel needs to start, as one frozen value; and the seam where another maker of kernels comes in."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, TypeAlias

import msgspec

from .interpreter import Interpreter
from .kernelspecs import InstalledKernel

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from .kernel import Kernel


class Place(msgspec.Struct, frozen=True):
    """What a process is started with: a warm kernel is for jobs of the same place only."""

    program: Interpreter | InstalledKernel
    environment: dict[str, str]


class KernelSpec(msgspec.Struct, frozen=True, kw_only=True):
    """One kernel to be: where it runs, with what, and where its output goes."""

    name: str  # the job's id, for logs
    workspace: Path
    interpreter: str  # of the kernels that our launcher starts
    installed: InstalledKernel | None = None  # or another kernel instead
    environment: dict[str, str]
    folder: Path  # private to this kernel, short enough for socket paths; made at the start, removed at the end
    profile: Path  # IPython's own folder, shared by the server's kernels
    stdout: Path
    stderr: Path
    door: Path | None = None  # the host-callback socket
    token: str | None = None
    file_bytes: int | None = None
    memory_bytes: int | None = None
    output_chars: int = 24 << 20  # of one representation; a longer one is not even sent


KernelFactory: TypeAlias = "Callable[[KernelSpec], Kernel | Awaitable[Kernel]]"
