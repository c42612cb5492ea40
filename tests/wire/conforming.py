"""Every message of a server to an MCP peer, held against the schema of its revision, where those are at hand.

`CELLHOST_MCP_SCHEMAS` names the folder with the published schemas; without it nothing is checked.
"""

from __future__ import annotations

import json
import os
from functools import cache
from pathlib import Path
from typing import Any, cast

from jsonschema.validators import validator_for

STATELESS = "2026-07-28"
NEWEST_HANDSHAKE = "2025-11-25"
TASKS = "ext-tasks-draft"
VERSION_KEY = "io.modelcontextprotocol/protocolVersion"
SUBSCRIPTION_KEY = "io.modelcontextprotocol/subscriptionId"
RESULTS = {
    "initialize": "InitializeResult",
    "server/discover": "DiscoverResult",
    "tools/list": "ListToolsResult",
    "tools/call": "CallToolResult",
    "resources/list": "ListResourcesResult",
    "resources/templates/list": "ListResourceTemplatesResult",
    "resources/read": "ReadResourceResult",
    "resources/subscribe": "EmptyResult",
    "resources/unsubscribe": "EmptyResult",
    "logging/setLevel": "EmptyResult",
    "subscriptions/listen": "SubscriptionsListenResult",
    "tasks/get": "GetTaskResult",
    "tasks/update": "UpdateTaskResult",
    "tasks/cancel": "CancelTaskResult",
}
FIRST_WITH_ERROR_RESPONSE = "2025-11-25"


class Conforming:
    """Follows one conversation, and raises for the first message of the server's that does not conform."""

    def __init__(self) -> None:
        self._handshake: str | None = None
        self._asked: dict[Any, tuple[str, str]] = {}

    def sent(self, data: bytes) -> None:
        """Note what the peer asks for."""
        for line in data.splitlines():
            try:
                request = json.loads(line)
            except ValueError:
                continue
            if isinstance(request, dict):
                self._note(cast("dict[str, Any]", request))

    def received(self, message: Any) -> None:
        """Check a message of the server's."""
        for each in cast("list[Any]", message) if isinstance(message, list) else [message]:
            if "method" in each:
                self._check_own(each)
            else:
                self._check_answer(each)

    def _note(self, request: dict[str, Any]) -> None:
        method, params = request.get("method"), request.get("params")
        meta = cast("dict[str, Any]", params).get("_meta") if isinstance(params, dict) else None
        if isinstance(meta, dict) and VERSION_KEY in meta:
            revision = STATELESS
        elif method == "initialize" and isinstance(params, dict) and "protocolVersion" in params:
            revision = NEWEST_HANDSHAKE  # of an error; the result tells which one it is
        else:
            revision = self._handshake or NEWEST_HANDSHAKE
        id_ = request.get("id")
        if method in RESULTS and isinstance(id_, int | str):
            self._asked[id_] = (revision, cast("str", method))

    def _check_own(self, message: dict[str, Any]) -> None:
        method: str = message["method"]
        if not method.startswith(("notifications/", "elicitation/")):
            return  # of another dialect
        stateless = self._handshake is None or SUBSCRIPTION_KEY in message["params"].get("_meta", {})
        if method == "notifications/tasks":
            fits(TASKS, "TaskStatusNotification", message)
        else:
            kind = "ServerRequest" if "id" in message else "ServerNotification"
            fits(STATELESS if stateless else cast("str", self._handshake), kind, message)

    def _check_answer(self, message: dict[str, Any]) -> None:
        revision, method = self._asked.pop(message.get("id"), (None, ""))
        if revision is None:
            return
        if "error" in message:
            name = "JSONRPCErrorResponse" if revision >= FIRST_WITH_ERROR_RESPONSE else "JSONRPCError"
            fits(revision, name, message)
            return
        result: dict[str, Any] = message["result"]
        if method == "initialize" and "protocolVersion" in result:
            revision = self._handshake = cast("str", result["protocolVersion"])
        if result.get("resultType") == "input_required":
            fits(revision, "InputRequiredResult", result)
        elif result.get("resultType") == "task":
            fits(TASKS, "CreateTaskResult", result)
        elif method != "initialize" or "protocolVersion" in result:  # else an editor's
            fits(TASKS if method.startswith("tasks/") else revision, RESULTS[method], result)


def fits(revision: str, name: str, value: Any) -> None:
    """Check a value with a definition of a schema."""
    folder = os.environ.get("CELLHOST_MCP_SCHEMAS")
    if folder is not None:
        _validator(folder, revision, name).validate(value)


@cache
def _validator(folder: str, revision: str, name: str) -> Any:
    schema = json.loads((Path(folder) / f"{revision}.json").read_text())
    section = "$defs" if "$defs" in schema else "definitions"
    validator: Any = validator_for(schema)
    return validator({"$ref": f"#/{section}/{name}", section: schema[section]})
