"""A good request of every method in every dialect, to be spoilt. None ends the server or runs code."""

from __future__ import annotations

from typing import Any

HANDSHAKE: dict[str, Any] = {
    "protocolVersion": "2025-11-25",
    "capabilities": {"elicitation": {}},
    "clientInfo": {"name": "t", "version": "1"},
}
STATELESS: dict[str, Any] = {
    "io.modelcontextprotocol/protocolVersion": "2026-07-28",
    "io.modelcontextprotocol/clientCapabilities": {
        "elicitation": {},
        "extensions": {"io.modelcontextprotocol/tasks": {}},
    },
    "progressToken": "token",
}
TOOLS: dict[str, dict[str, Any]] = {
    "query_schema": {"database": "absent"},
    "query": {"sql": "SELECT ? AS a", "params": [1], "limit": 5, "format": "table", "explain": False},
    "frames": {"pattern": "x", "status": "done", "roots_only": True, "page": 0, "page_size": 5, "limit": 5},
    "lineage_get": {"version_id": "v-000000000000"},
    "lineage_graph": {"version_id": "v-000000000000", "direction": "up", "max_depth": 3, "max_nodes": 5},
    "exec_background": {"code": "1", "label": "x", "timeout_s": 5, "env": {"A": "b"}, "key": "k"},
    "exec_list": {"status": "done", "limit": 5},
    "exec_peek": {"exec_id": "exec-000000000000", "since": "0", "max_chars": 5, "stream": "both"},
    "exec_wait": {"exec_id": "exec-000000000000", "timeout_s": 0.1, "since": "0", "until": "news"},
    "exec_interrupt": {"exec_id": "exec-000000000000"},
    "kernel_info": {"packages": "py"},
    "list_files": {"pattern": "**", "limit": 5},
    "read_file": {"path": "a.txt", "offset": 1, "limit": 5, "encoding": "utf-8"},
    "write_file": {"path": "a.txt", "content": "x", "append": True},
    "edit_file": {"path": "a.txt", "old": "x", "new": "y", "replace_all": True},
    "save_artifact": {"path": "a.txt", "filename": "b.txt", "input_version_ids": [], "priority": 1},
    "list_artifacts": {"search": "x", "filename": "b.txt", "limit": 5},
}
HARNESS: dict[str, dict[str, Any]] = {
    "ping": {},
    "frame_new": {"kind": "turn", "name": "x", "status": "done"},
    "frame_update": {"frame_id": "f-000000000000", "status": "done", "name": "x"},
    "frame_use": {"frame_id": "f-000000000000"},
    "permission_set": {"scope": "global", "tool": "write_file", "pattern": "*.txt", "decision": "allow"},
    "permission_list": {"scope": "global", "tool": "write_file"},
    "permission_remove": {"rule_id": "r-000000000000"},
    "permission_check": {"tool": "write_file", "arguments": {"path": "a.txt", "content": "x"}},
    "permission_pending": {},
    "permission_resolve": {"request_id": "q-000000000000", "decision": "deny", "remember": "once"},
    "subscribe": {"events": ["exec", "permission"]},
    "rpc.discover": {},
}
HANDSHAKE_ERA: dict[str, dict[str, Any]] = {
    "initialize": HANDSHAKE,
    "tools/list": {},
    "resources/list": {},
    "resources/templates/list": {},
    "resources/read": {"uri": "job://exec-000000000000/log"},
    "resources/subscribe": {"uri": "job://exec-000000000000/log"},
    "resources/unsubscribe": {"uri": "job://exec-000000000000/log"},
    "logging/setLevel": {"level": "emergency"},
}
STATELESS_ERA: dict[str, dict[str, Any]] = {
    "server/discover": {},
    "tools/list": {},
    "resources/list": {},
    "resources/templates/list": {},
    "resources/read": {"uri": "job://exec-000000000000/log"},
    "subscriptions/listen": {"notifications": {"resourcesListChanged": True, "taskIds": ["exec-000000000000"]}},
    "tasks/get": {"taskId": "exec-000000000000"},
    "tasks/update": {"taskId": "exec-000000000000", "inputResponses": {}},
    "tasks/cancel": {"taskId": "exec-000000000000"},
}
NOTIFICATIONS: dict[str, dict[str, Any]] = {
    "$/cancelRequest": {"id": "x"},
    "$/setTrace": {"value": "off"},
    "initialized": {},
    "notifications/initialized": {},
    "notifications/cancelled": {"requestId": "x", "reason": "y"},
    "notifications/progress": {"progressToken": "x", "progress": 1},
}


def _messages() -> list[dict[str, Any]]:
    calls = [*TOOLS.items(), *HARNESS.items(), *HANDSHAKE_ERA.items()]
    calls += [("tools/call", {"name": name, "arguments": arguments}) for name, arguments in TOOLS.items()]
    calls += [(name, params | {"_meta": STATELESS}) for name, params in STATELESS_ERA.items()]
    calls += [
        ("tools/call", {"name": name, "arguments": arguments, "_meta": STATELESS}) for name, arguments in TOOLS.items()
    ]
    calls.append(("initialize", {"processId": None, "rootUri": None, "capabilities": {}, "workDoneToken": 1}))
    told = [{"jsonrpc": "2.0", "method": method, "params": params} for method, params in NOTIFICATIONS.items()]
    named = [_request(method, params) for method, params in calls]
    positional = [_request(method, [*params.values()]) for method, params in calls]
    return named + positional + told


def _request(method: str, params: Any) -> dict[str, Any]:
    return {"jsonrpc": "2.0", "id": "x", "method": method, "params": params}


MESSAGES: list[dict[str, Any]] = _messages()
