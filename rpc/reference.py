"""The reference for people: an OpenRPC document of ours as Markdown, so that it cannot say anything else."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from ..store.counting import counted
from ..tools.registry import REGISTRY

if TYPE_CHECKING:
    from collections.abc import Iterator

Schema = dict[str, Any]

_LIMITS = {
    "minimum": "≥ {}",
    "exclusiveMinimum": "> {}",
    "maximum": "≤ {}",
    "minLength": "at least {character}",
    "maxLength": "at most {character}",
    "maxItems": "at most {item}",
    "pattern": "matches `{}`",
    "default": "default {}",
}


def markdown(document: dict[str, Any]) -> str:
    """A chapter for tools, one for the harness's methods, one for errors."""
    return "\n".join(_lines(document)) + "\n"


def _lines(document: dict[str, Any]) -> Iterator[str]:
    info = document["info"]
    yield f"# {info['title']} {info['version']}: methods"
    methods: list[dict[str, Any]] = document["methods"]
    schemas: dict[str, Schema] = document["components"]["schemas"]
    for title, wanted in (("Tools", True), ("Methods of the harness", False)):
        yield from ("", f"## {title}")
        for method in methods:
            if (REGISTRY.get(method["name"]) is not None) is wanted:
                yield from _method(method, schemas)
    yield from ("", "## Errors", "", "| kind | code | when |", "|---|---|---|")
    for kind, error in document["components"]["errors"].items():
        yield f"| `{kind}` | {error['code']} | {_cell(error['message'])} |"


def _method(method: dict[str, Any], schemas: dict[str, Schema]) -> Iterator[str]:
    yield from ("", f"### `{method['name']}`", "", method["description"])
    tool = REGISTRY.get(method["name"])
    if tool is not None:
        approval = "needs approval" if tool.requires_approval else "needs no approval"
        called = "" if tool.host_method == tool.name else f"; host method `{tool.host_method}`"
        yield from ("", f"*{tool.side_effect_class}, {approval}{called}*")
    if method["params"]:
        yield from ("", "| parameter | type | |", "|---|---|---|")
        for parameter in method["params"]:
            mark = " *" if parameter["required"] else ""
            schema = parameter["schema"]
            yield f"| `{parameter['name']}`{mark} | {_cell(_type(schema))} | {_cell(_meaning(schema))} |"
    yield from ("", f"Result: `{_type(method['result']['schema'], schemas)}`")


def _meaning(schema: Schema) -> str:
    limits = [_limit(text, schema[name]) for name, text in _LIMITS.items() if name in schema]
    return " ".join(filter(None, [schema.get("description", ""), f"({', '.join(limits)})" if limits else ""]))


def _limit(text: str, value: Any) -> str:
    things = {noun: counted(value, noun) for noun in ("character", "item") if isinstance(value, int)}
    return text.format(json.dumps(value).strip('"'), **things)


def _type(schema: Schema, schemas: dict[str, Schema] | None = None) -> str:
    """A schema in the notation of the contract: `{name: type}`, `[type]`, `a | b`."""
    if "$ref" in schema:
        name = schema["$ref"].rpartition("/")[2]
        return _type((schemas or {})[name], schemas) if name in (schemas or {}) else name
    if "enum" in schema:
        return " | ".join(json.dumps(value) for value in schema["enum"])
    if "anyOf" in schema:
        return " | ".join(dict.fromkeys(_type(option, schemas) for option in schema["anyOf"]))
    kind = schema.get("type", "any")
    if kind == "array":
        return f"[{_type(schema.get('items') or {}, schemas)}]"
    if kind == "object":
        return _object(schema, schemas)
    return " | ".join(kind) if isinstance(kind, list) else str(kind)  # pyright: ignore[reportUnknownArgumentType]


def _object(schema: Schema, schemas: dict[str, Schema] | None) -> str:
    required = schema.get("required", [])
    members = [
        f"{name}{'' if name in required else '?'}: {_type(inner, schemas)}"
        for name, inner in schema.get("properties", {}).items()
    ]
    others = schema.get("additionalProperties")
    if isinstance(others, dict):
        members.append(f"[name]: {_type(others, schemas)}")  # pyright: ignore[reportUnknownArgumentType]
    return "{" + ", ".join(members) + "}" if members else "object"


def _cell(text: str) -> str:
    return " ".join(text.split()).replace("|", "\\|")
