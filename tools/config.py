"""Settings of one host: where it keeps things, and its limits."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

import msgspec

from ..store.errors import InvalidParams

_Positive = Annotated[int, msgspec.Meta(ge=1)]
_Seconds = Annotated[float, msgspec.Meta(gt=0)]
WarmKernels = Annotated[int, msgspec.Meta(ge=0, le=16)]
"""More than start in the time of a few jobs are never taken, and each holds its memory for as long as it waits."""


class Limits(msgspec.Struct, kw_only=True):
    """What one call, one job and one server may use at most; times in seconds, sizes in bytes.

    `session_kernels` keep the state of foreground cells; for another one the longest idle ends. Of what a job displays
    are kept `job_outputs` figures, tables and the like, each up to `output_bytes`, with all their versions up to
    `job_output_bytes`.
    """

    query_timeout_s: _Seconds = 5.0
    query_rows: _Positive = 10_000
    query_bytes: _Positive = 8 * 1024 * 1024
    query_value_bytes: _Positive = 1_000_000
    query_workers: _Positive = 2
    jobs_running: _Positive = 16
    jobs_queued: _Positive = 1_000
    session_kernels: _Positive = 8
    job_disk_bytes: _Positive = 1024 * 1024 * 1024
    job_outputs: _Positive = 100
    job_output_bytes: _Positive = 256 * 1024 * 1024
    output_bytes: _Positive = 16 * 1024 * 1024
    frame_bytes: _Positive = 16 * 1024 * 1024
    read_bytes: _Positive = 8 * 1024 * 1024
    mcp_chars: _Positive = 16_000


class Kept(msgspec.Struct, kw_only=True):
    """How long a project's ended jobs are kept: seconds since their end, bytes of all their logs."""

    job_age_s: _Seconds = 30 * 24 * 3600.0
    job_log_bytes: _Positive = 10 * 1024 * 1024 * 1024


class Config(msgspec.Struct, kw_only=True):
    """Settings of one host; every field may be set after construction and before `async with`.

    `data_dir` defaults to the user's data folder for cellhost. `rules` are `(tool, pattern, decision)` that hold
    for this server's conversation only. `databases` maps a name to the path of an SQLite file. `warm_kernels` are kept
    ready for the next jobs once there was one, with `prewarm` from the first reply of `serve` on.
    """

    data_dir: Path | None = None
    project_id: str = "default"
    new_session: bool = False
    frame_id: str | None = None
    team_mode: bool = False
    python: str | None = None
    warm_kernels: WarmKernels = 1
    prewarm: bool = False
    rules: tuple[tuple[str, str, Literal["allow", "deny", "ask"]], ...] = ()
    databases: dict[str, Path] = {}
    limits: Limits = msgspec.field(default_factory=Limits)
    kept: Kept = msgspec.field(default_factory=Kept)

    def check(self) -> None:
        """Raise `InvalidParams` for a number that is out of its bounds."""
        numbers = (("limits", Limits), ("kept", Kept), ("warm_kernels", WarmKernels))
        for name, kind in numbers:
            try:
                msgspec.convert(msgspec.to_builtins(getattr(self, name)), kind)
            except msgspec.ValidationError as error:
                message, _, at = str(error).replace("`", "").partition(" - at $")
                raise InvalidParams(f"Config.{name}{at}: {message.lower()}", hint="give another value") from None

    def data_folder(self) -> Path:
        """The data folder, absolute; it need not exist yet."""
        if self.data_dir is not None:
            return Path(self.data_dir).absolute()
        from platformdirs import user_data_path

        return user_data_path("cellhost", appauthor=False)
