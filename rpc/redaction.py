"""Secrets taken out of what is kept for others to read: members named like one, and texts that look like one."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, cast

if TYPE_CHECKING:
    from collections.abc import Sequence

REDACTED = "<redacted>"

_NAME = re.compile(
    r"passw(or)?d|passphrase|secret|credential|cookie|authori[sz]ation|api_?key|access_?key|private_?key"
    r"|(^|_|[a-z])token$|token_?value",
    re.IGNORECASE,
)
_NO_SECRET = {"progressToken", "workDoneToken", "partialResultToken", "nextPageToken"}
_TEXT = re.compile(
    r"-----BEGIN [A-Z ]*PRIVATE KEY-----.*?(?:-----END [A-Z ]*PRIVATE KEY-----|\Z)"
    r"|\b(?:sk|pk|rk)[-_](?:live|test|proj|ant)?[-_]?[A-Za-z0-9_-]{20,}"
    r"|\bgh[opsur]_[A-Za-z0-9]{20,}|\bgithub_pat_\w{20,}|\bglpat-[\w-]{16,}"
    r"|\bA(?:KIA|SIA)[A-Z0-9]{16}\b|\bxox[abeoprs]-[\w-]{10,}|\bAIza[\w-]{35}"
    r"|\beyJ[\w-]{8,}\.eyJ[\w-]{8,}\.[\w-]{8,}"
    r"|(?<=Bearer )[\w.~+/-]{16,}=*|(?<=://)[^/\s:@]+:[^/\s:@]+(?=@)",
    re.DOTALL,
)


def redacted(value: Any, name: str = "") -> Any:
    """The same JSON value without its secrets; `name` is the member it stands in."""
    if isinstance(value, dict):
        members = cast("dict[str, Any]", value)
        return {key: redacted(member, key) for key, member in members.items()}
    if isinstance(value, list):
        return [redacted(item, name) for item in cast("Sequence[Any]", value)]
    if not isinstance(value, str):
        return value
    if value and name not in _NO_SECRET and _NAME.search(name):
        return REDACTED
    return _TEXT.sub(REDACTED, value)
