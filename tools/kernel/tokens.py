"""Who is calling through the kernel door: a secret per job, known as long as the job lives.

token = tokens.issue(identity);  tokens.identify(token) == identity;  tokens.revoke(token)
"""

from __future__ import annotations

import hashlib
import secrets

import msgspec

_BYTES = 32


class JobIdentity(msgspec.Struct, frozen=True):
    """The job that a token stands for; project, session and origin of its calls come from here."""

    exec_id: str
    cell_id: str
    project_id: str
    frame_id: str
    root_frame_id: str


class Tokens:
    """The table of live tokens; kept by digest, so that neither time nor a dump of it gives one away."""

    def __init__(self) -> None:
        self._identities: dict[bytes, JobIdentity] = {}

    def __len__(self) -> int:
        return len(self._identities)

    def issue(self, identity: JobIdentity) -> str:
        """A new 256-bit token, 64 hex digits."""
        token = secrets.token_hex(_BYTES)
        self._identities[_digest(token)] = identity
        return token

    def identify(self, token: str) -> JobIdentity | None:
        """The job of a live token, else `None`."""
        return self._identities.get(_digest(token))

    def revoke(self, token: str) -> None:
        """Forget a token; unknown ones are ignored."""
        self._identities.pop(_digest(token), None)


def _digest(token: str) -> bytes:
    return hashlib.sha256(token.encode(errors="surrogatepass")).digest()
