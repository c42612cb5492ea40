"""control.db: what decides and what is remembered of the calls. No query ever opens this file."""

from __future__ import annotations

from typing import TYPE_CHECKING

from .audit import Audit
from .projects import Projects
from .requests import Requests
from .rules import Rules
from .servers import Servers
from .sessions import Sessions
from .settings import Settings
from .sqlite import Database
from .tables import CONTROL

if TYPE_CHECKING:
    import threading
    from pathlib import Path


class Control:
    """One data folder's control.db; opened by the first use of anything in it."""

    def __init__(
        self, data_dir: Path, *, lock: threading.RLock, busy_timeout_s: float, read_only: bool = False
    ) -> None:
        # FULL: a rule or an audit row that was answered for survives a power cut.
        self.database = Database(
            data_dir / "control.db",
            name="control.db",
            schema=CONTROL,
            synchronous="FULL",
            lock=lock,
            busy_timeout_s=busy_timeout_s,
            read_only=read_only,
        )
        self.rules = Rules(self.database)
        self.requests = Requests(self.database)
        self.audit = Audit(self.database)
        self.sessions = Sessions(self.database)
        self.projects = Projects(self.database)
        self.servers = Servers(self.database)
        self.settings = Settings(self.database)

    def close(self) -> None:
        self.database.close()
