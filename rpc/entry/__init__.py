"""cellhost: read-only SQL, provenance of files and background Python jobs for LLM agents, over JSON-RPC."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from cellhost.rpc.inprocess import Dispatcher, build_dispatcher
    from cellhost.store.version import VERSION as __version__  # noqa: N811 (the name Python has for it)
    from cellhost.tools.config import Config

__all__ = ["Config", "Dispatcher", "__version__", "build_dispatcher"]

# Resolved on first use: the wire's descriptors are claimed before anything of ours is imported.
_HOMES = {
    "Config": "cellhost.tools.config",
    "__version__": "cellhost.store.version",
    "Dispatcher": "cellhost.rpc.inprocess",
    "build_dispatcher": "cellhost.rpc.inprocess",
}


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'cellhost' has no attribute {name!r}")
    return getattr(import_module(_HOMES[name]), {"__version__": "VERSION"}.get(name, name))
