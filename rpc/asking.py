"""Putting a question to the person behind a peer, in the peer's dialect."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal, cast

import msgspec

from ..tools.approval import Answer
from .dialect import EDITOR, MCP, PLAIN

if TYPE_CHECKING:
    from ..tools.approval import Ask, Question
    from .connection import Connection

_DECISIONS: dict[str, Answer] = {
    "Allow once": Answer("allow", "once"),
    "Allow in this conversation": Answer("allow", "conversation"),
    "Allow in this project": Answer("allow", "project"),
    "Always allow": Answer("allow", "always"),
    "Deny": Answer("deny", "once"),
}
_WARNING = 2
"""LSP `MessageType.Warning`."""


def asker(connection: Connection) -> Ask | None:
    """The best way to ask the person behind a connection now, if there is one."""
    peer = connection.peer
    if "permission" in peer.events:
        return lambda question: _ask_plain(connection, question)
    if peer.can_elicit:
        return lambda question: _elicit(connection, question)
    if peer.editor:
        return lambda question: _show_message(connection, question)
    return None


async def _ask_plain(connection: Connection, question: Question) -> Answer | None:
    params = msgspec.to_builtins(question)
    response = await connection.outgoing.request("permission/ask", params, PLAIN)
    return _read(_result(response))


async def _elicit(connection: Connection, question: Question) -> Answer | None:
    response = await connection.outgoing.request("elicitation/create", elicitation(question), MCP)
    return elicited(_result(response))


async def _show_message(connection: Connection, question: Question) -> Answer | None:
    params = {
        "type": _WARNING,
        "message": text_of(question),
        "actions": [{"title": title} for title in _DECISIONS],
    }
    response = await connection.outgoing.request("window/showMessageRequest", params, EDITOR)
    return _DECISIONS.get(str(_result(response).get("title")))


def elicitation(question: Question) -> dict[str, Any]:
    """Params of an MCP `elicitation/create` request in form mode (2025-06-18 and later)."""
    return {
        "message": text_of(question),
        "requestedSchema": {
            "type": "object",
            "properties": {
                "decision": {
                    "type": "string",
                    "title": "Decision",
                    "description": "Whether the call may run, and for how long that holds.",
                    "enum": list(_DECISIONS),
                }
            },
            "required": ["decision"],
        },
    }


def elicited(result: dict[str, Any]) -> Answer | None:
    """The answer in an `ElicitResult`; a form that was declined denies, one that was dismissed decides nothing."""
    if result.get("action") == "decline":
        return Answer("deny")
    if result.get("action") != "accept":
        return None
    content = result.get("content")
    chosen = cast("dict[str, Any]", content).get("decision") if isinstance(content, dict) else None
    return _DECISIONS.get(str(chosen))


def text_of(question: Question) -> str:
    """What a person reads: the tool, the whole code or diff, what a rule would cover."""
    covers = "\n".join(f"- {name}: {what}" for name, what in question.would_remember.items())
    warning = "\nIt can change or end what others made." if question.dangerous else ""
    return f"Allow {question.tool}?{warning}\n\n{question.preview}\n\nAn approval covers\n{covers}"


class _PlainAnswer(msgspec.Struct):
    decision: Literal["allow", "deny"]
    remember: Literal["once", "conversation", "project", "always"] = "once"


def _read(result: dict[str, Any]) -> Answer | None:
    try:
        answer = msgspec.convert(result, _PlainAnswer)
    except msgspec.ValidationError:
        return None  # no decision we know: as if it was dismissed
    return Answer(answer.decision, answer.remember)


def _result(response: dict[str, Any] | None) -> dict[str, Any]:
    """The result of a response; empty for an error, a bare null, or a peer that has gone."""
    result = (response or {}).get("result")
    return cast("dict[str, Any]", result) if isinstance(result, dict) else {}
