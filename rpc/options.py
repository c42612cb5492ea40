"""The flags that stand for settings, and the parser that every verb uses."""

from __future__ import annotations

import argparse
import os
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

from ..store.errors import HostError, InvalidParams
from .settings import DECISIONS, Settings, resolve

if TYPE_CHECKING:
    from .settings import Resolved

USAGE = 2
_UNSET: Any = argparse.SUPPRESS  # a flag that is not given leaves the setting to the layers below


class Parser(argparse.ArgumentParser):
    """Says what is wrong in one line, since a host's log may be where it ends up; flags are written out."""

    def __init__(self, *, allow_abbrev: bool = False, **given: Any) -> None:
        super().__init__(allow_abbrev=allow_abbrev, **given)

    def error(self, message: str) -> NoReturn:
        self.exit(USAGE, f"{self.prog}: {message} ({self.prog} --help lists the options)\n")


def add_data_dir(parser: argparse.ArgumentParser) -> None:
    """The flags that say which data folder is meant."""
    add = parser.add_argument
    add("--config", type=Path, default=_UNSET, metavar="FILE", help="settings (default: the user's config.toml)")
    add("--data-dir", type=Path, default=_UNSET, help="where records are kept (default: the user's data folder)")


def add_place(parser: argparse.ArgumentParser) -> None:
    """The flags that say which records are meant."""
    add_data_dir(parser)
    parser.add_argument("--project", default=_UNSET, help="project that the records belong to")


def add_settings(parser: argparse.ArgumentParser) -> None:
    """A flag for every setting except `limits` and `kept`, which are for the file and the environment."""
    add = parser.add_argument
    add("--workspace", type=_folder, default=_UNSET, help="folder of the agent's files (default: this one)")
    add_place(parser)
    for decision in DECISIONS:
        add(
            f"--{decision}",
            action="append",
            default=_UNSET,
            metavar="TOOL[:PATTERN]",
            help=f"{decision} calls of a tool, for this server only",
        )
    add(
        "--database",
        dest="databases",
        action="append",
        type=_database,
        default=_UNSET,
        metavar="NAME=PATH",
        help="let `query` read this SQLite file",
    )
    add(
        "--python", metavar="PATH", default=_UNSET, help="interpreter of the jobs (default: the workspace's, else ours)"
    )
    add("--prewarm", action="store_true", default=_UNSET, help="have a kernel ready for the first job too")
    add("--warm-kernels", type=int, metavar="N", default=_UNSET, help="kernels kept ready, at most 16 (default: 1)")
    add("--team", action="store_true", default=_UNSET, help="jobs only from a session-scoped kernel factory")
    add("--log-level", default=_UNSET, choices=("debug", "info", "warning", "error"), help="what goes to stderr")
    add("--log-format", default=_UNSET, choices=("text", "json"), help="how it is written")
    add("--log-file", type=Path, metavar="FILE", default=_UNSET, help="log to a file instead of stderr")


def settings_of(given: argparse.Namespace) -> Resolved:
    """The settings of all layers, the parsed flags on top. Raises `InvalidParams`."""
    flags = {name: value for name, value in vars(given).items() if name in Settings.__struct_fields__}
    if "databases" in flags:
        flags["databases"] = dict(flags["databases"])
    return resolve(flags=flags, file=file_of(given), environment=os.environ)


def file_of(given: argparse.Namespace) -> Path | None:
    """The settings file that `--config` names, if it is given."""
    file: Path | None = vars(given).get("config")
    return file


# What a peer is advised to call is no verb.
_ADVICE = {
    "no such job": "`cellhost jobs` lists them",
    "no such frame": "`cellhost frames` lists them",
}


def complaint(command: str, error: HostError) -> str:
    """An error as the one line that stderr gets: what went wrong, and what to do."""
    text = str(error).removeprefix("$.")
    advice = _ADVICE.get(text, error.hint)
    if advice is None and isinstance(error, InvalidParams):
        told = (f"{issue.path.removeprefix('$.')}: {issue.message}" for issue in error.issues)
        advice = "; ".join(issue for issue in told if issue != text)
    return f"{command}: {text}" + (f" ({advice})" if advice else "") + "\n"


def count(text: str) -> int:
    """An argument that says how many."""
    if not (text.isdecimal() and 0 < len(text) < 8 and int(text)):
        raise argparse.ArgumentTypeError(f"{text[:64]!r}: must be a number from 1 to 9999999")
    return int(text)


def _folder(text: str) -> Path:
    path = Path(text)
    if path.exists() and not path.is_dir():
        raise argparse.ArgumentTypeError(f"{text!r} is not a folder")
    return path


def _database(text: str) -> tuple[str, str]:
    name, equals, path = text.partition("=")
    if not (name and equals and path):
        raise argparse.ArgumentTypeError(f"{text!r}: write NAME=PATH")
    return name, path
