"""Fixtures that answer with content of every kind: tools, prompts and resources."""

from __future__ import annotations

import base64
import io
import json
import re
import struct
import wave
import zlib
from typing import TYPE_CHECKING, Any

from .fixture_call import Answer, prompt, said, text, tool

if TYPE_CHECKING:
    from .fixture_call import FixtureCall

TEMPLATE = re.compile(r"test://template/([^/]+)/data")


def _chunk(kind: bytes, data: bytes) -> bytes:
    return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))


def _png() -> str:
    """One red pixel (Portable Network Graphics, third edition, §11)."""
    header = struct.pack(">IIBBBBB", 1, 1, 8, 2, 0, 0, 0)
    pixels = zlib.compress(b"\x00\xff\x00\x00")
    data = b"\x89PNG\r\n\x1a\n" + _chunk(b"IHDR", header) + _chunk(b"IDAT", pixels) + _chunk(b"IEND", b"")
    return base64.b64encode(data).decode("ascii")


def _wav() -> str:
    """One sample of silence."""
    file = io.BytesIO()
    with wave.open(file, "wb") as sound:
        sound.setparams((1, 2, 8000, 1, "NONE", "not compressed"))
        sound.writeframes(b"\x00\x00")
    return base64.b64encode(file.getvalue()).decode("ascii")


IMAGE: Answer = {"type": "image", "data": _png(), "mimeType": "image/png"}
AUDIO: Answer = {"type": "audio", "data": _wav(), "mimeType": "audio/wav"}

RESOURCES: dict[str, Answer] = {
    "test://static-text": {"mimeType": "text/plain", "text": "This is the content of the static text resource."},
    "test://static-binary": {"mimeType": "image/png", "blob": IMAGE["data"]},
    "test://watched-resource": {"mimeType": "text/plain", "text": "Something to watch."},
}
TEMPLATES: list[Answer] = [
    {"uriTemplate": "test://template/{id}/data", "name": "template", "description": "Data of an id."}
]


def embedded(uri: str, words: str, mime: str = "text/plain") -> Answer:
    """A resource inside of content."""
    return {"type": "resource", "resource": {"uri": uri, "mimeType": mime, "text": words}}


def listed_resources() -> list[Answer]:
    """The resources as a list shows them."""
    return [
        {"uri": uri, "name": uri.removeprefix("test://"), "description": "A fixture.", "mimeType": each["mimeType"]}
        for uri, each in RESOURCES.items()
    ]


def read_resource(uri: str) -> Answer | None:
    """The contents of one of our resources, or None."""
    if uri in RESOURCES:
        return {"contents": [{"uri": uri, **RESOURCES[uri]}]}
    match = TEMPLATE.fullmatch(uri)
    if match is None:
        return None
    data = {"id": match[1], "templateTest": True, "data": f"Data for ID: {match[1]}"}
    return {"contents": [{"uri": uri, "mimeType": "application/json", "text": json.dumps(data)}]}


@tool("test_simple_text", "Answers with a text.")
async def simple_text(_call: FixtureCall) -> Answer:
    return said("This is a simple text response for testing.")


@tool("test_image_content", "Answers with an image.")
async def image_content(_call: FixtureCall) -> Answer:
    return {"content": [IMAGE]}


@tool("test_audio_content", "Answers with a sound.")
async def audio_content(_call: FixtureCall) -> Answer:
    return {"content": [AUDIO]}


@tool("test_embedded_resource", "Answers with a resource.")
async def embedded_resource(_call: FixtureCall) -> Answer:
    return {"content": [embedded("test://embedded-resource", "This is an embedded resource content.")]}


@tool("test_multiple_content_types", "Answers with a text, an image and a resource.")
async def multiple_content_types(_call: FixtureCall) -> Answer:
    resource = embedded("test://mixed-content-resource", '{"test":"data","value":123}', "application/json")
    return {"content": [text("Multiple content types test:"), IMAGE, resource]}


@tool("test_error_handling", "Always fails.")
async def error_handling(_call: FixtureCall) -> Answer:
    return {**said("This tool intentionally returns an error for testing"), "isError": True}


@tool("test_tool_with_progress", "Reports its progress.")
async def tool_with_progress(call: FixtureCall) -> Answer:
    call.progress(0, 50, 100)
    return said("All three steps are done.")


@tool("test_tool_with_logging", "Logs while it runs.")
async def tool_with_logging(call: FixtureCall) -> Answer:
    for words in ("Tool execution started", "Tool processing data", "Tool execution completed"):
        call.log(words)
    return said("Three messages were logged.")


@tool("test_logging_tool", "Logs one message, if that is wanted.")
async def logging_tool(call: FixtureCall) -> Answer:
    call.log("One message.")
    return said("Done.")


SCHEMA_2020_12: Answer = {
    "$schema": "https://json-schema.org/draft/2020-12/schema",
    "type": "object",
    "$defs": {
        "address": {
            "$anchor": "addressDef",
            "type": "object",
            "properties": {"street": {"type": "string"}, "city": {"type": "string"}},
        }
    },
    "properties": {
        "name": {"type": "string"},
        "address": {"$ref": "#/$defs/address"},
        "contactMethod": {"type": "string", "enum": ["phone", "email"]},
        "phone": {"type": "string"},
        "email": {"type": "string"},
    },
    "allOf": [{"anyOf": [{"required": ["phone"]}, {"required": ["email"]}]}],
    "if": {"properties": {"contactMethod": {"const": "phone"}}, "required": ["contactMethod"]},
    "then": {"required": ["phone"]},
    "else": {"required": ["email"]},
    "additionalProperties": False,
}


@tool("json_schema_2020_12_tool", "Has a schema with keywords of JSON Schema 2020-12.", SCHEMA_2020_12)
async def json_schema_2020_12(_call: FixtureCall) -> Answer:
    return said("Done.")


def messages(*contents: Answer) -> Answer:
    """A prompt's messages, all the user's."""
    return {"messages": [{"role": "user", "content": content} for content in contents]}


@prompt("test_simple_prompt", "A prompt without arguments.")
async def simple_prompt(_call: FixtureCall) -> Answer:
    return messages(text("This is a simple prompt for testing."))


@prompt("test_prompt_with_arguments", "A prompt with two arguments.", "arg1", "arg2")
async def prompt_with_arguments(call: FixtureCall) -> Answer:
    given: Any = call.arguments
    return messages(text(f"Prompt with arguments: arg1='{given['arg1']}', arg2='{given['arg2']}'"))


@prompt("test_prompt_with_embedded_resource", "A prompt that embeds a resource.", "resourceUri")
async def prompt_with_embedded_resource(call: FixtureCall) -> Answer:
    resource = embedded(call.arguments["resourceUri"], "Embedded resource content for testing.")
    return messages(resource, text("Please process the embedded resource above."))


@prompt("test_prompt_with_image", "A prompt with an image.")
async def prompt_with_image(_call: FixtureCall) -> Answer:
    return messages(IMAGE, text("Please analyze the image above."))
