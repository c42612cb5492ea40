"""Fixtures that ask the client: by requests of ours in the handshake era, by `input_required` in the stateless one."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from cellhost.store.errors import InvalidParams, Issue

from .fixture_call import Answer, prompt, required, said, text, tool
from .fixture_content import messages

if TYPE_CHECKING:
    from .fixture_call import FixtureCall

OPTIONS = ["option1", "option2", "option3"]


def form(message: str, properties: Answer, *needed: str) -> Answer:
    """Params of `elicitation/create`."""
    schema = {"type": "object", "properties": properties, "required": list(needed)}
    return {"message": message, "requestedSchema": schema}


def elicitation(message: str, field: str, kind: str = "string") -> Answer:
    """An input request for one field."""
    return {"method": "elicitation/create", "params": form(message, {field: {"type": kind}}, field)}


def sampling(words: str) -> Answer:
    """An input request for a model's answer."""
    spoken = [{"role": "user", "content": text(words)}]
    return {"method": "sampling/createMessage", "params": {"messages": spoken, "maxTokens": 100}}


ROOTS: Answer = {"method": "roots/list", "params": {}}


def asked(state: str | None = None, **requests: Answer) -> Answer:
    """An `InputRequiredResult`."""
    result: Answer = {"resultType": "input_required", "inputRequests": requests}
    return result if state is None else result | {"requestState": state}


@tool("test_sampling", "Asks the client's model.", required("prompt"))
async def ask_model(call: FixtureCall) -> Answer:
    result = await call.ask("sampling/createMessage", sampling(call.arguments["prompt"])["params"])
    return said(f"LLM response: {result['content']['text']}")


@tool("test_elicitation", "Asks the user.", required("message"))
async def ask_user(call: FixtureCall) -> Answer:
    properties: Answer = {
        "username": {"type": "string", "description": "User's response"},
        "email": {"type": "string", "description": "User's email address"},
    }
    return await _elicited(call, form(call.arguments["message"], properties, "username", "email"))


@tool("test_elicitation_sep1034_defaults", "Asks with defaults.")
async def ask_with_defaults(call: FixtureCall) -> Answer:
    properties: Answer = {
        "name": {"type": "string", "default": "John Doe"},
        "age": {"type": "integer", "default": 30},
        "score": {"type": "number", "default": 95.5},
        "status": {"type": "string", "enum": ["active", "inactive", "pending"], "default": "active"},
        "verified": {"type": "boolean", "default": True},
    }
    return await _elicited(call, form("Look these over.", properties))


@tool("test_elicitation_sep1330_enums", "Asks with choices of every kind.")
async def ask_with_choices(call: FixtureCall) -> Answer:
    titled = [{"const": f"value{n}", "title": f"{nth} Option"} for n, nth in enumerate(("First", "Second", "Third"), 1)]
    properties: Answer = {
        "untitledSingle": {"type": "string", "enum": OPTIONS},
        "titledSingle": {"type": "string", "oneOf": titled},
        "legacyEnum": {
            "type": "string",
            "enum": ["opt1", "opt2", "opt3"],
            "enumNames": ["Option One", "Option Two", "Option Three"],
        },
        "untitledMulti": {"type": "array", "items": {"type": "string", "enum": OPTIONS}},
        "titledMulti": {"type": "array", "items": {"anyOf": titled}},
    }
    return await _elicited(call, form("Choose.", properties))


async def _elicited(call: FixtureCall, params: Answer) -> Answer:
    result = await call.ask("elicitation/create", params)
    return said(f"Elicitation completed: action={result.get('action')}, content={json.dumps(result.get('content'))}")


@tool("test_missing_capability", "Needs a client that samples.")
async def missing_capability(call: FixtureCall) -> Answer:
    if call.stateless:
        call.need("sampling")
    return said("The client can sample.")


@tool("test_streaming_elicitation", "Asks for a name.")
async def streaming_elicitation(_call: FixtureCall) -> Answer:
    return asked(user_name=elicitation("What is your name?", "name"))


@tool("test_input_required_result_elicitation", "Asks for a name.")
async def one_elicitation(call: FixtureCall) -> Answer:
    response = call.given("user_name")
    if response is None:
        return asked(user_name=elicitation("What is your name?", "name"))
    return said(f"Hello, {_content(response, 'name')}!")


@tool("test_input_required_result_sampling", "Asks the client's model.")
async def one_sampling(call: FixtureCall) -> Answer:
    response = call.given("capital_question")
    if response is None:
        return asked(capital_question=sampling("What is the capital of France?"))
    return said(response["content"]["text"])


@tool("test_input_required_result_list_roots", "Asks for the client's roots.")
async def one_list_of_roots(call: FixtureCall) -> Answer:
    response = call.given("client_roots")
    if response is None:
        return asked(client_roots=ROOTS)
    return said(", ".join(root["uri"] for root in response["roots"]))


@tool("test_input_required_result_request_state", "Asks, and keeps a state meanwhile.")
async def with_state(call: FixtureCall) -> Answer:
    remembered = await call.remembered()
    if remembered is None or call.given("confirm") is None:
        return asked(await call.sign("confirm"), confirm=elicitation("Please confirm", "ok", "boolean"))
    return said("state-ok")


@tool("test_input_required_result_tampered_state", "Asks, and trusts no state but its own.")
async def with_trusted_state(call: FixtureCall) -> Answer:
    return await with_state(call)


@tool("test_input_required_result_multiple_inputs", "Asks for three things at once.")
async def three_requests(call: FixtureCall) -> Answer:
    remembered = await call.remembered()
    wanted = {
        "user_name": elicitation("What is your name?", "name"),
        "greeting": sampling("Greet somebody."),
        "client_roots": ROOTS,
    }
    missing = {key: request for key, request in wanted.items() if call.given(key) is None}
    if remembered is None or missing:
        return asked(await call.sign("three"), **missing)
    return said("All three were given.")


@tool("test_input_required_result_multi_round", "Asks twice, one after the other.")
async def two_rounds(call: FixtureCall) -> Answer:
    remembered = await call.remembered()
    name = call.given("step1")
    if remembered is None:
        return asked(await call.sign("step1"), step1=elicitation("What is your name?", "name"))
    if name is not None:
        state = await call.sign(f"step2 {_content(name, 'name')}")
        return asked(state, step2=elicitation("What is your favorite color?", "color"))
    color = call.given("step2")
    if color is None:
        raise InvalidParams("an answer is missing", [Issue("$.inputResponses.step2", "required")])
    return said(f"{remembered.removeprefix('step2 ')} likes {_content(color, 'color')}.")


@tool("test_input_required_result_capabilities", "Asks only for what the client can do.")
async def within_capabilities(call: FixtureCall) -> Answer:
    possible = {
        "elicitation": ("user_name", elicitation("What is your name?", "name")),
        "sampling": ("greeting", sampling("Greet somebody.")),
        "roots": ("client_roots", ROOTS),
    }
    return asked(None, **dict(request for capability, request in possible.items() if capability in call.capabilities))


@prompt("test_input_required_result_prompt", "A prompt that asks first.")
async def asking_prompt(call: FixtureCall) -> Answer:
    response = call.given("user_context")
    if response is None:
        return asked(user_context=elicitation("What context should the prompt use?", "context"))
    return messages(text(f"The context is {_content(response, 'context')}."))


def _content(response: Answer, field: str) -> Any:
    content: Answer = response.get("content") or {}
    return content.get(field, "nobody")
