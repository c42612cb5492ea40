"""`requestState`: what a stateless client carries from our question to its retry; signed, bound to a call, short-lived.

A state is `payload.signature`, both base64url; the payload is `[request_id, call digest, expiry in epoch seconds]`. The
key is the data folder's, so that an answer still counts after a restart.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
import time
from typing import TYPE_CHECKING, Any

import msgspec

from ..store.errors import InvalidParams, Issue
from ..tools.approval import WITHIN_S

if TYPE_CHECKING:
    from ..tools.host import Host


class RequestState:
    """Makes and checks the states of one data folder."""

    def __init__(self, host: Host) -> None:
        self._host = host
        self._key: bytes | None = None

    async def sign(self, request_id: str, tool: str, arguments: dict[str, Any] | None) -> str:
        """The state of a question about this call."""
        expires = int(time.time() + WITHIN_S)
        payload = msgspec.json.encode([request_id, _digest(tool, arguments), expires])
        return f"{_text(payload)}.{_text(await self._signature(payload))}"

    async def verify(self, state: str, tool: str, arguments: dict[str, Any] | None) -> str:
        """The id of the request that the state is about.

        Raises:
            InvalidParams: not signed by us, of another call, or too old.
        """
        payload, _, signature = state.partition(".")
        try:
            signed, given = _bytes(payload), _bytes(signature)
        except (binascii.Error, ValueError):
            raise _refused("is not one of ours") from None
        if not hmac.compare_digest(given, await self._signature(signed)):
            raise _refused("is not one of ours")
        request_id, digest, expires = msgspec.json.decode(signed, type=tuple[str, str, int])
        if digest != _digest(tool, arguments):
            raise _refused("belongs to another call")
        if expires < time.time():
            raise _refused("is too old")
        return request_id

    async def _signature(self, payload: bytes) -> bytes:
        if self._key is None:
            settings = self._host.store.store.control.settings
            self._key = bytes.fromhex(await self._host.store.run(settings.secret, "request_state_key"))
        return hmac.digest(self._key, payload, "sha256")


def _digest(tool: str, arguments: dict[str, Any] | None) -> str:
    return hashlib.sha256(msgspec.json.encode([tool, arguments or {}], order="sorted")).hexdigest()


def _text(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).decode("ascii")


def _bytes(text: str) -> bytes:
    return base64.b64decode(text.encode("ascii"), altchars=b"-_", validate=True)


def _refused(why: str) -> InvalidParams:
    return InvalidParams(
        f"invalid params: $.requestState {why}", [Issue("$.requestState", why)], hint="make the call without it again"
    )
