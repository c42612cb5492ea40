"""`cellhost serve`: settings from the command line, then the server."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn

import anyio

from ..store.errors import HostError
from ..tools.config import Config

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ..tools.rules import Decision
    from .claim import Descriptors

OK, FAILED, USAGE = 0, 1, 2
DECISIONS: tuple[Decision, ...] = ("allow", "deny", "ask")


class _Parser(argparse.ArgumentParser):
    """Says what is wrong in one line, since a host's log is where it ends up."""

    def error(self, message: str) -> NoReturn:
        self.exit(USAGE, f"{self.prog}: {message} ({self.prog} --help lists the options)\n")


def parser() -> argparse.ArgumentParser:
    """The options of `serve`."""
    options = _Parser(
        prog="cellhost serve", description="Speak JSON-RPC on stdin and stdout until stdin ends.", allow_abbrev=False
    )
    add = options.add_argument
    add("--workspace", type=Path, default=Path(), help="folder of the agent's files (default: this one)")
    add("--data-dir", type=Path, help="where records are kept (default: the user's data folder)")
    add("--project", default="default", help="project that the records belong to")
    session = options.add_mutually_exclusive_group()
    session.add_argument("--new-session", action="store_true", help="do not continue the workspace's last session")
    session.add_argument("--frame", metavar="ID", help="continue this frame, in its project")
    for decision in DECISIONS:
        add(
            f"--{decision}",
            action="append",
            default=[],
            metavar="TOOL[:PATTERN]",
            help=f"{decision} calls of a tool, for this server only",
        )
    add("--database", action="append", default=[], metavar="NAME=PATH", help="let `query` read this SQLite file")
    add("--python", metavar="PATH", help="interpreter of the jobs (default: the workspace's .venv, else ours)")
    add("--prewarm", action="store_true", help="have a kernel ready for the first job too")
    add("--team", action="store_true", help="jobs only from a session-scoped kernel factory")
    add("--record", type=Path, metavar="FILE", help="write a transcript of the conversation")
    add("--log-level", default="warning", choices=("debug", "info", "warning", "error"), help="what goes to stderr")
    add("--log-format", default="text", choices=("text", "json"), help="how it is written")
    add("--log-file", type=Path, metavar="FILE", help="log to a file instead of stderr")
    return options


def config_of(given: argparse.Namespace) -> Config:
    """The settings that the options stand for.

    Raises:
        SystemExit: with status 2, for options that do not fit.
    """
    if given.workspace.exists() and not given.workspace.is_dir():
        parser().error(f"--workspace {str(given.workspace)!r}: is not a folder")
    databases: dict[str, Path] = {}
    for text in given.database:
        name, equals, path = text.partition("=")
        if not (name and equals and path):
            parser().error(f"--database {text!r}: write NAME=PATH")
        databases[name] = Path(path).absolute()
    return Config(
        data_dir=given.data_dir,
        project_id=given.project,
        new_session=given.new_session,
        frame_id=given.frame,
        team_mode=given.team,
        python=given.python,
        prewarm=given.prewarm,
        rules=tuple(_rule(text, decision) for decision in DECISIONS for text in getattr(given, decision)),
        databases=databases,
    )


def _rule(text: str, decision: Decision) -> tuple[str, str, Decision]:
    from ..tools.registry import REGISTRY

    tool, _, pattern = text.partition(":")
    if tool != "*" and REGISTRY.get(tool) is None:
        parser().error(f"--{decision} {text!r}: no such tool; one of {', '.join(REGISTRY.tools)} or *")
    return tool, pattern or "*", decision


def run(arguments: Sequence[str], descriptors: Descriptors) -> int:
    """Serve with the given options and return the exit code."""
    from .log import configure

    given = parser().parse_args(arguments)
    try:
        configure(given.log_level, given.log_format, given.log_file)
        return anyio.run(_serve, given, arguments, descriptors)
    except HostError as error:
        print(f"cellhost: {error}" + (f" ({error.hint})" if error.hint else ""), file=sys.stderr)  # noqa: T201 (stderr, not the wire)
        return FAILED


async def _serve(given: argparse.Namespace, arguments: Sequence[str], descriptors: Descriptors) -> int:
    from .server import serve

    config = config_of(given)
    recorder = None
    if given.record is not None:
        from .record import Recorder

        folders = {"workspace": given.workspace, "data_dir": config.data_folder()}
        recorder = Recorder(given.record, arguments, folders)
    return await serve(config, given.workspace, descriptors, recorder)
