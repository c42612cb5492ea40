"""Settings of a data folder: small values that outlive a server."""

from __future__ import annotations

import secrets
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from .sqlite import Database

_SECRET_BYTES = 32


class Settings:
    """The `settings` table of control.db."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def secret(self, key: str) -> str:
        """A random secret (64 hex digits), made once: every server of the folder gets the same."""
        self._database.execute(
            "INSERT OR IGNORE INTO settings (key, value) VALUES (?, ?)", [key, secrets.token_hex(_SECRET_BYTES)]
        )
        return str(self._database.value("SELECT value FROM settings WHERE key = ?", [key]))
