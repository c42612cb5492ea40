"""JSON Schema of a params struct or a result type, derived from the types and from nothing else."""

from __future__ import annotations

from typing import Any, cast

import msgspec

Schema = dict[str, Any]

LARGEST = 2**53 - 1
"""The largest integer that every JSON reader keeps exactly."""


def parameters_schema(struct: type[msgspec.Struct]) -> Schema:
    """An object schema without `$ref` at its top, closed to unknown keys.

    A parameter that may be `None` in Python is simply optional on the wire (null counts as absent), so null is
    left out of its schema, and with it the default.
    """
    schema = _inlined(struct)
    properties: Schema = {name: _without_null(inner) for name, inner in schema.get("properties", {}).items()}
    closed: Schema = {"type": "object", "properties": properties, "additionalProperties": False}
    if schema.get("required"):
        closed["required"] = schema["required"]
    return closed


def result_schema(result: Any) -> Schema:
    """Schema of what a tool returns; nested types stand in `$defs`."""
    schema = _inlined(result)
    schema.pop("title", None)
    return schema


def _inlined(kind: Any) -> Schema:
    """msgspec writes `{"$ref": "#/$defs/X", "$defs": …}` for a named type: put X in the place of the reference."""
    schema: Schema = msgspec.json.schema(kind)
    reference = schema.pop("$ref", None)
    if reference is None:
        return schema
    definitions: Schema = schema.pop("$defs", {})
    top: Schema = definitions.pop(reference.rpartition("/")[2])
    return top | ({"$defs": definitions} if definitions else {})


def _without_null(schema: Schema) -> Schema:
    schema = {key: value for key, value in schema.items() if not (key == "default" and value is None)}
    options = cast("list[Schema] | None", schema.pop("anyOf", None))
    if options is None:
        return _with_items(schema)
    kept = [_with_items(option) for option in options if option != {"type": "null"}]
    return schema | (kept[0] if len(kept) == 1 else {"anyOf": kept})


def _with_items(schema: Schema) -> Schema:
    """Some hosts refuse an array that does not say what is in it."""
    return schema | {"items": {}} if schema.get("type") == "array" and "items" not in schema else schema
