"""`rpc.discover`: the server described as an OpenRPC document, made from the methods themselves."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ..store.errors import (
    Busy,
    Closed,
    Denied,
    InternalError,
    InvalidParams,
    NotFound,
    PermissionNeeded,
    QueryError,
    StorageError,
    TimedOut,
    TooLarge,
    UnknownMethod,
)
from ..store.version import VERSION
from ..tools.tool import Tool

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ..tools.method import Method

OPENRPC = "1.3.2"

_ERRORS = (
    InvalidParams,
    UnknownMethod,
    QueryError,
    PermissionNeeded,
    Denied,
    NotFound,
    TimedOut,
    Closed,
    TooLarge,
    Busy,
    StorageError,
    InternalError,
)


def openrpc_document(table: Mapping[str, Method[Any, Any]]) -> dict[str, Any]:
    """Every method that a plain peer may call, with parameters, result and errors (OpenRPC 1.3)."""
    methods = {method.name: method for method in table.values() if "plain" in method.doors}
    schemas: dict[str, Any] = {}
    return {
        "openrpc": OPENRPC,
        "info": {"title": "cellhost", "version": VERSION},
        "methods": [_described(method, schemas) for method in methods.values()],
        "components": {"schemas": schemas, "errors": {error.kind: _error(error) for error in _ERRORS}},
    }


def _described(method: Method[Any, Any], schemas: dict[str, Any]) -> dict[str, Any]:
    parameters = method.input_schema()
    required = parameters.get("required", [])
    described: dict[str, Any] = {
        "name": method.name,
        "description": method.description,
        "paramStructure": "either",
        "params": [
            {"name": name, "required": name in required, "schema": schema, **_description(schema)}
            for name, schema in parameters["properties"].items()
        ],
        "result": {"name": f"{method.name}_result", "schema": _lifted(method.output_schema(), schemas)},
        "errors": [{"$ref": f"#/components/errors/{error.kind}"} for error in _ERRORS],
    }
    if isinstance(method, Tool):
        described["summary"] = method.title
    return described


def _description(schema: dict[str, Any]) -> dict[str, Any]:
    return {"description": schema["description"]} if "description" in schema else {}


def _lifted(schema: dict[str, Any], schemas: dict[str, Any]) -> dict[str, Any]:
    """A schema whose definitions are moved to the document's components, with its references."""
    schemas |= {name: _relocated(inner) for name, inner in schema.pop("$defs", {}).items()}
    relocated: dict[str, Any] = _relocated(schema)
    return relocated


def _relocated(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: _relocated(inner) for name, inner in value.items()}  # pyright: ignore[reportUnknownVariableType]
    if isinstance(value, list):
        return [_relocated(inner) for inner in value]  # pyright: ignore[reportUnknownVariableType]
    return value.replace("#/$defs/", "#/components/schemas/") if isinstance(value, str) else value


def _error(error: type[Any]) -> dict[str, Any]:
    return {"code": error.code, "message": str(error.__doc__).splitlines()[0]}
