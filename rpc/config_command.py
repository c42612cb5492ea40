"""`cellhost config`: every effective setting and where it came from; with `--host`, what a host is told to spawn."""

from __future__ import annotations

import json
import sys
from typing import TYPE_CHECKING

import msgspec

from .host_snippet import SNIPPETS, snippet
from .looking import table
from .options import Parser, add_settings, file_of, settings_of

if TYPE_CHECKING:
    from typing import Any

    from .settings import Resolved


def main(arguments: list[str]) -> int:
    """Write the settings, or the snippet, and return the exit code."""
    parser = Parser(
        prog="cellhost config",
        description="Show what serve would run with: defaults < config.toml < CELLHOST_* < flags.",
    )
    add_settings(parser)
    form = parser.add_mutually_exclusive_group()
    form.add_argument("--json", action="store_true", help="as a JSON array of {name, value, origin}")
    form.add_argument("--host", choices=SNIPPETS, help="the snippet that makes this host spawn such a server")
    given = parser.parse_args(arguments)
    resolved, file = settings_of(given), file_of(given)
    folder = resolved.settings.config().data_folder()
    if given.host:
        _show_snippet(given.host, resolved, str(file.absolute()) if file else None)
        return 0
    items = [item._replace(value=folder) if item.name == "data_dir" else item for item in resolved.items()]
    if given.json:
        _show_json([item._asdict() for item in items])
    else:
        rows = [(item.name, _text(item.value), item.origin) for item in items]
        sys.stdout.write(table(("setting", "value", "from"), rows))
    return 0


def _show_snippet(host: str, resolved: Resolved, file: str | None) -> None:
    where, document = snippet(host, resolved, file)
    _show_json(document)
    sys.stderr.write(f"This belongs into {where}.\n")


def _show_json(value: Any) -> None:
    json.dump(msgspec.to_builtins(value, enc_hook=str), sys.stdout, indent=2, ensure_ascii=False)
    sys.stdout.write("\n")


def _text(value: Any) -> str:
    return "-" if value is None else str(value).lower() if isinstance(value, bool) else str(value)
