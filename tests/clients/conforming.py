"""Whether what a server sent in a recorded MCP conversation conforms to the revision that was agreed on."""

from __future__ import annotations

import json
import os
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import mcp_types
from jsonschema.validators import validator_for
from pydantic import TypeAdapter

if TYPE_CHECKING:
    from collections.abc import Iterable

    from cellhost.rpc.transcript import Line

RESULTS = {
    "initialize": "InitializeResult",
    "server/discover": "DiscoverResult",
    "tools/list": "ListToolsResult",
    "tools/call": "CallToolResult",
}


@cache
def published(revision: str) -> dict[str, Any] | None:
    """The protocol's schema of a revision, where it is at hand."""
    folder = os.environ.get("CELLHOST_MCP_SCHEMAS")
    return None if folder is None else json.loads((Path(folder) / f"{revision}.json").read_text())


def conforms(revision: str, lines: Iterable[Line]) -> int:
    """Check every result, request and notification of the server's, and return how many there were."""
    asked: dict[Any, str] = {}
    checked = 0
    for line in lines:
        message: dict[str, Any] = _without_holes(line.message)
        if line.mark == "->":
            asked[message.get("id")] = message.get("method", "")
        elif "method" in message:
            _fits(revision, "ServerRequest" if "id" in message else "ServerNotification", message)
            checked += 1
        elif "result" in message:
            result = message["result"]
            waits = result.get("resultType") == "input_required"
            _fits(
                revision, "InputRequiredResult" if waits else RESULTS.get(asked[message["id"]], "EmptyResult"), result
            )
            checked += 1
    return checked


def _without_holes(message: Any) -> Any:
    """The message with an object where the recorder has put a name for one."""
    return json.loads(json.dumps(message).replace('"<packages>"', "{}"))


def _fits(revision: str, name: str, value: dict[str, Any]) -> None:
    TypeAdapter[Any](getattr(mcp_types, name)).validate_python(value)
    schema = published(revision)
    if schema is not None:
        section = "$defs" if "$defs" in schema else "definitions"
        validator: Any = validator_for(schema)
        validator({"$ref": f"#/{section}/{name}", section: schema[section]}).validate(value)
