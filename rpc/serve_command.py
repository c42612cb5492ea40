"""`cellhost serve`: settings from all their layers, then the server."""

from __future__ import annotations

import gc
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import anyio

from ..store.errors import HostError, InvalidParams
from .options import USAGE, Parser, add_settings, complaint, settings_of

if TYPE_CHECKING:
    import argparse
    from collections.abc import Sequence

    from .claim import Descriptors
    from .settings import Settings

FAILED = 1
MADE_BETWEEN_COLLECTIONS = 10_000
"""Objects: a call's die with it, except what the audit keeps for a moment, for which Python would search every 700."""


def parser() -> argparse.ArgumentParser:
    """The options of `serve`."""
    options = Parser(prog="cellhost serve", description="Speak JSON-RPC on stdin and stdout until stdin ends.")
    add_settings(options)
    session = options.add_mutually_exclusive_group()
    session.add_argument("--new-session", action="store_true", help="do not continue the workspace's last session")
    session.add_argument("--frame", metavar="ID", help="continue this frame, in its project")
    options.add_argument("--record", type=Path, metavar="FILE", help="write a transcript of the conversation")
    return options


def run(arguments: Sequence[str], descriptors: Descriptors) -> int:
    """Serve with the given options and return the exit code."""
    from .log import configure

    given = parser().parse_args(arguments)
    try:
        settings = settings_of(given).settings
        configure(settings.log_level, settings.log_format, settings.log_file)
        return anyio.run(_serve, given, settings, arguments, descriptors)
    except HostError as error:
        sys.stderr.write(complaint("cellhost", error))
        return USAGE if isinstance(error, InvalidParams) else FAILED


async def _serve(
    given: argparse.Namespace, settings: Settings, arguments: Sequence[str], descriptors: Descriptors
) -> int:
    from .server import serve

    gc.set_threshold(MADE_BETWEEN_COLLECTIONS)
    config = settings.config(new_session=given.new_session, frame_id=given.frame)
    recorder = None
    if given.record is not None:
        from .record import Recorder

        folders = {"workspace": settings.workspace, "data_dir": config.data_folder()}
        recorder = Recorder(given.record, arguments, folders)
    return await serve(config, settings.workspace, descriptors, recorder)
