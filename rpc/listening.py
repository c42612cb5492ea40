"""`subscriptions/listen` (MCP 2026-07-28): one request that stays open and carries the notifications it asked for."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, cast

import anyio

from ..store.errors import HostError
from ..tools.resources import is_resource
from .subscriptions import changed, news_of

if TYPE_CHECKING:
    from ..tools.host import Host
    from .incoming import Incoming
    from .subscriptions import News
    from .tasks import Tasks

SUBSCRIPTION_KEY = "io.modelcontextprotocol/subscriptionId"


class Filter:
    """What a client asked for, as far as we offer it."""

    def __init__(self, wanted: dict[str, Any]) -> None:
        self.list_changed = wanted.get("resourcesListChanged") is True
        self.uris = {uri for uri in _texts(wanted.get("resourceSubscriptions")) if is_resource(uri)}
        self.tasks = set(_texts(wanted.get("taskIds")))

    def as_acknowledged(self) -> dict[str, Any]:
        """What will be sent."""
        agreed: dict[str, Any] = {}
        if self.list_changed:
            agreed["resourcesListChanged"] = True
        if self.uris:
            agreed["resourceSubscriptions"] = sorted(self.uris)
        if self.tasks:
            agreed["taskIds"] = sorted(self.tasks)
        return agreed


async def listen(host: Host, tasks: Tasks, incoming: Incoming, wanted: dict[str, Any]) -> dict[str, Any]:
    """Send what was asked for until the client cancels the request or the server ends; then the closing result."""
    stream = _Stream(incoming, Filter(wanted), tasks)
    with incoming.waiting():
        async with anyio.create_task_group() as running:

            async def until_the_end() -> None:
                await host.ending.wait()
                running.cancel_scope.cancel()

            running.start_soon(until_the_end)
            async with news_of(host) as news:
                stream.acknowledge()  # what happens from now on is told
                async for items in news:
                    await stream.tell(items)
    return {"_meta": {SUBSCRIPTION_KEY: incoming.id}}


class _Stream:
    def __init__(self, incoming: Incoming, wanted: Filter, tasks: Tasks) -> None:
        self._incoming = incoming
        self._filter = wanted
        self._tasks = tasks

    def acknowledge(self) -> None:
        self._notify("notifications/subscriptions/acknowledged", {"notifications": self._filter.as_acknowledged()})

    async def tell(self, items: list[News]) -> None:
        if self._filter.list_changed and any(item.is_of_list for item in items):
            self._notify("notifications/resources/list_changed", {})
        for uri in changed(items, self._filter.uris):
            self._notify("notifications/resources/updated", {"uri": uri})
        for task_id in dict.fromkeys(item.id for item in items if item.kind in ("status", "progress")):
            if task_id in self._filter.tasks:
                await self._tell_task(task_id)

    async def _tell_task(self, task_id: str) -> None:
        try:
            task = await self._tasks.get(task_id)
        except HostError:
            return  # another project's: it is not there for this caller
        self._notify("notifications/tasks", task)

    def _notify(self, method: str, params: dict[str, Any]) -> None:
        own = {"_meta": {SUBSCRIPTION_KEY: self._incoming.id}}
        self._incoming.connection.outgoing.notify(method, params | own)


def _texts(value: Any) -> list[str]:
    items = cast("list[Any]", value) if isinstance(value, list) else []
    return [item for item in items if isinstance(item, str)]
