"""A person is asked in every dialect; an answer runs a call once, or makes a rule; nothing runs by itself."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from .conftest import Peer, Spawn

CODE = "print('ran')"
STATELESS: dict[str, Any] = {
    "io.modelcontextprotocol/protocolVersion": "2026-07-28",
    "io.modelcontextprotocol/clientCapabilities": {"elicitation": {}},
}


async def reply(peer: Peer, question: dict[str, Any], result: Any) -> None:
    await peer.send(json.dumps({"jsonrpc": "2.0", "id": question["id"], "result": result}).encode() + b"\n")


async def asked(peer: Peer, method: str) -> dict[str, Any]:
    """The server's next request, which must be of that method."""
    question: dict[str, Any] = await peer.receive()
    assert question["method"] == method, question
    return question


async def shake_hands(peer: Peer, *, elicitation: bool = True) -> None:
    capabilities: dict[str, Any] = {"elicitation": {}} if elicitation else {}
    params = {
        "protocolVersion": "2025-11-25",
        "capabilities": capabilities,
        "clientInfo": {"name": "t", "version": "1"},
    }
    await peer.result("initialize", params)
    await peer.send(b'{"jsonrpc":"2.0","method":"notifications/initialized"}\n')


async def jobs(peer: Peer) -> list[str]:
    return [row["exec_id"] for row in await peer.result("exec_list")]


async def test_a_plain_peer_is_asked_with_all_it_needs_to_decide(spawn: Spawn) -> None:
    async with spawn() as peer:
        assert await peer.result("subscribe", {"events": ["permission"]}) == {"events": ["permission"]}
        call = await peer.request("exec_background", {"code": CODE})
        question = await asked(peer, "permission/ask")
        params = question["params"]
        assert (params["tool"], params["target"], params["preview"]) == ("exec_background", CODE, CODE)
        assert params["resource_keys"] == ["background:jobs"]
        assert params["dangerous"] is True
        assert set(params["would_remember"]) == {"once", "conversation", "project", "always"}
        assert "sha256:" in params["would_remember"]["always"]
        await reply(peer, question, {"decision": "allow", "remember": "once"})
        launched = await peer.receive()
        assert launched["id"] == call
        assert launched["result"]["exec_id"] in await jobs(peer)


@pytest.mark.parametrize("answer", [{"decision": "deny"}, {"decision": "perhaps"}, None, {}])
async def test_a_refusal_or_no_decision_runs_nothing(spawn: Spawn, answer: Any) -> None:
    async with spawn() as peer:
        await peer.result("subscribe", {"events": ["permission"]})
        await peer.request("exec_background", {"code": CODE})
        await reply(peer, await asked(peer, "permission/ask"), answer)
        refused = await peer.receive()
        assert refused["error"]["code"] == -31401
        assert await jobs(peer) == []


@pytest.mark.parametrize("remember", ["conversation", "project", "always"])
async def test_an_answer_to_remember_makes_a_rule_for_that_code_only(spawn: Spawn, remember: str) -> None:
    async with spawn() as peer:
        await peer.result("subscribe", {"events": ["permission"]})
        await peer.request("exec_background", {"code": CODE})
        await reply(peer, await asked(peer, "permission/ask"), {"decision": "allow", "remember": remember})
        assert "result" in await peer.receive()
        assert "exec_id" in await peer.result("exec_background", {"code": CODE})
        await peer.request("exec_background", {"code": CODE + "#"})
        await reply(peer, await asked(peer, "permission/ask"), {"decision": "deny"})
        assert "error" in await peer.receive()


async def test_permission_resolve_answers_an_open_question_and_takes_it_back(spawn: Spawn) -> None:
    async with spawn() as peer:
        await peer.result("subscribe", {"events": ["permission"]})
        call = await peer.request("exec_background", {"code": CODE})
        question = await asked(peer, "permission/ask")
        resolve = await peer.request("permission_resolve", [question["params"]["request_id"], "allow"])
        seen = [await peer.receive() for _ in range(3)]
        assert {"jsonrpc": "2.0", "method": "$/cancelRequest", "params": {"id": question["id"]}} in seen
        results = {message["id"]: message["result"] for message in seen if "result" in message}
        assert results[resolve]["state"] == "allowed"
        assert results[call]["exec_id"]


async def test_a_cancelled_call_withdraws_its_question_and_a_late_answer_counts_for_the_next_call(spawn: Spawn) -> None:
    async with spawn() as peer:
        await peer.result("subscribe", {"events": ["permission"]})
        call = await peer.request("exec_background", {"code": CODE})
        question = await asked(peer, "permission/ask")
        await peer.send(
            json.dumps({"jsonrpc": "2.0", "method": "$/cancelRequest", "params": {"id": call}}).encode() + b"\n"
        )
        seen = [await peer.receive(), await peer.receive()]
        assert any(message.get("error", {}).get("code") == -32800 for message in seen)
        request_id = question["params"]["request_id"]
        assert (await peer.result("permission_resolve", [request_id, "allow"]))["state"] == "allowed"
        assert await jobs(peer) == []
        assert "exec_id" in await peer.result("exec_background", {"code": CODE})


async def test_a_question_left_open_survives_a_restart_and_runs_nothing_by_itself(spawn: Spawn) -> None:
    async with spawn() as peer:
        await peer.result("subscribe", {"events": ["permission"]})
        await peer.request("exec_background", {"code": CODE})
        question = await asked(peer, "permission/ask")
        peer.process.kill()
        await peer.process.wait()
    async with spawn() as peer:
        (pending,) = await peer.result("permission_pending")
        assert pending["request_id"] == question["params"]["request_id"]
        await peer.result("permission_resolve", [pending["request_id"], "allow"])
        assert await jobs(peer) == []
        # A new session's call is not the one that asked; the workspace's session was never written.
        assert (await peer.call("exec_background", {"code": CODE}))["id"]


async def test_one_approval_runs_one_of_eight_racing_calls(spawn: Spawn) -> None:
    async with spawn() as peer:
        await peer.result("subscribe", {"events": ["permission"]})
        calls = [await peer.request("exec_background", {"code": CODE}) for _ in range(8)]
        await reply(peer, await asked(peer, "permission/ask"), {"decision": "allow", "remember": "once"})
        answers: dict[Any, Any] = {}
        while len(answers) < 8:
            message = await peer.receive()
            if message.get("method") == "permission/ask":
                await reply(peer, message, {"decision": "deny"})
            elif "method" not in message:  # else a question that is taken back
                answers[message["id"]] = message
        assert sorted("result" in answers[call] for call in calls) == [False] * 7 + [True]
        assert len(await jobs(peer)) == 1


async def test_sixty_four_open_questions_hold_nobody_up_and_their_answers_are_read(spawn: Spawn) -> None:
    async with spawn() as peer:
        await peer.result("subscribe", {"events": ["permission"]})
        for number in range(64):
            await peer.request("exec_background", {"code": f"print({number})"})
        questions = [await asked(peer, "permission/ask") for _ in range(64)]
        assert len({question["params"]["request_id"] for question in questions}) == 64
        assert (await peer.result("ping"))["version"]
        assert await peer.result("query", ["SELECT 1 AS a"]) == [{"a": 1}]
        for question in questions:
            await reply(peer, question, {"decision": "deny"})
        answers = [await peer.receive() for _ in questions]
        assert all("error" in answer for answer in answers)


async def test_a_file_s_change_is_shown_as_a_diff(spawn: Spawn) -> None:
    async with spawn("--ask", "write_file", "--ask", "edit_file") as peer:
        await peer.result("permission_set", ["global", "write_file", "*", "ask"])
        for rule in await peer.result("permission_list"):
            if rule["tool"] in ("write_file", "edit_file") and rule["decision"] == "allow":
                await peer.result("permission_remove", [rule["rule_id"]])
        await peer.result("subscribe", {"events": ["permission"]})
        for method, params, shown in (
            ("write_file", {"path": "a.txt", "content": "one\ntwo\n"}, ["+one", "+two"]),
            ("write_file", {"path": "a.txt", "content": "one\nthree\n"}, ["-two", "+three"]),
            ("edit_file", {"path": "a.txt", "old": "three", "new": "four"}, ["-three", "+four"]),
        ):
            await peer.request(method, params)
            question = await asked(peer, "permission/ask")
            assert question["params"]["target"] == "a.txt"
            assert set(shown) <= set(question["params"]["preview"].splitlines()), question["params"]["preview"]
            await reply(peer, question, {"decision": "allow"})
            assert "result" in await peer.receive()


async def test_a_job_s_call_is_asked_over_a_channel_that_can_carry_it(spawn: Spawn) -> None:
    async with spawn("--allow", "exec_background", "--ask", "write_file:asked.txt") as peer:
        await peer.result("subscribe", {"events": ["permission"]})
        launched = await peer.result("exec_background", ["print(host.write_file('asked.txt', 'x')['bytes'])"])
        await reply(peer, await asked(peer, "permission/ask"), {"decision": "allow"})
        outcome = await peer.result("exec_wait", [launched["exec_id"]])
        assert (outcome["status"], outcome["stdout"]) == ("done", "1\n")


@pytest.mark.parametrize(
    ("result", "allowed"),
    [
        ({"action": "accept", "content": {"decision": "Allow once"}}, True),
        ({"action": "accept", "content": {"decision": "Always allow"}}, True),
        ({"action": "accept", "content": {"decision": "Deny"}}, False),
        ({"action": "accept", "content": {}}, False),
        ({"action": "decline"}, False),
        ({"action": "cancel"}, False),
    ],
)
async def test_an_mcp_peer_with_forms_is_asked_by_elicitation(spawn: Spawn, result: Any, allowed: bool) -> None:
    async with spawn() as peer:
        await shake_hands(peer)
        await peer.request("tools/call", {"name": "exec_background", "arguments": {"code": CODE}})
        question = await asked(peer, "elicitation/create")
        assert CODE in question["params"]["message"]
        assert question["params"]["requestedSchema"]["required"] == ["decision"]
        await reply(peer, question, result)
        answer = await peer.receive()
        assert ("structuredContent" in answer["result"]) is allowed
        assert answer["result"].get("isError", False) is not allowed


async def test_an_mcp_peer_without_forms_is_refused_at_once(spawn: Spawn) -> None:
    async with spawn() as peer:
        await shake_hands(peer, elicitation=False)
        refused = await peer.result("tools/call", {"name": "exec_background", "arguments": {"code": CODE}})
        assert refused["isError"] is True
        assert "--allow exec_background" in refused["content"][0]["text"]


async def test_an_editor_is_asked_with_a_message_request(spawn: Spawn) -> None:
    async with spawn() as peer:
        await peer.result("initialize", {"processId": None, "rootUri": None, "capabilities": {}})
        await peer.request("exec_background", {"code": CODE})
        question = await asked(peer, "window/showMessageRequest")
        assert CODE in question["params"]["message"]
        titles = [action["title"] for action in question["params"]["actions"]]
        await reply(peer, question, {"title": titles[0]})
        assert "exec_id" in (await peer.receive())["result"]
        await peer.request("exec_background", {"code": CODE})
        await reply(peer, await asked(peer, "window/showMessageRequest"), None)
        assert (await peer.receive())["error"]["data"]["kind"] == "permission"


def stateless(arguments: dict[str, Any], **members: Any) -> dict[str, Any]:
    return {"name": "exec_background", "arguments": arguments, "_meta": STATELESS, **members}


async def test_a_stateless_peer_carries_the_question_and_its_retry_runs_once(spawn: Spawn) -> None:
    async with spawn() as peer:
        asked_back = await peer.result("tools/call", stateless({"code": CODE}))
        assert asked_back["resultType"] == "input_required"
        assert CODE in asked_back["inputRequests"]["approval"]["params"]["message"]
        state = asked_back["requestState"]
        yes = {"approval": {"action": "accept", "content": {"decision": "Allow once"}}}
        done = await peer.result("tools/call", stateless({"code": CODE}, inputResponses=yes, requestState=state))
        assert (done["resultType"], done.get("isError", False)) == ("complete", False)
        again = await peer.result("tools/call", stateless({"code": CODE}, inputResponses=yes, requestState=state))
        assert again["resultType"] == "input_required", "a replayed answer approves nothing"
        assert len(await jobs(peer)) == 1


async def test_a_stateless_question_can_be_answered_after_a_restart(spawn: Spawn) -> None:
    async with spawn() as peer:
        await peer.result("write_file", ["a.txt", "x"])
        await peer.result("save_artifact", ["a.txt"])  # the session is written, so that it goes on
        state = (await peer.result("tools/call", stateless({"code": CODE})))["requestState"]
        assert await peer.end() == 0
    async with spawn() as peer:
        yes = {"approval": {"action": "accept", "content": {"decision": "Allow once"}}}
        done = await peer.result("tools/call", stateless({"code": CODE}, inputResponses=yes, requestState=state))
        assert "exec_id" in done["structuredContent"]


async def test_a_state_that_was_tampered_with_or_belongs_to_another_call_is_refused(spawn: Spawn) -> None:
    async with spawn() as peer:
        state = (await peer.result("tools/call", stateless({"code": CODE})))["requestState"]
        yes = {"approval": {"action": "accept", "content": {"decision": "Allow once"}}}
        for code, tampered in (
            (CODE, state[:-2] + "AA"),
            (CODE, "A" + state[1:]),
            (CODE, "nonsense"),
            (CODE, ""),
            (CODE, "ünicode.x"),
            (CODE + "#", state),
        ):
            params = stateless({"code": code}, inputResponses=yes, requestState=tampered)
            assert (await peer.error("tools/call", params))["code"] == -32602
        assert await jobs(peer) == []


async def test_a_stateless_refusal_or_no_answer_runs_nothing(spawn: Spawn) -> None:
    async with spawn() as peer:
        state = (await peer.result("tools/call", stateless({"code": CODE})))["requestState"]
        unanswered = await peer.result("tools/call", stateless({"code": CODE}, requestState=state))
        assert unanswered["resultType"] == "input_required"
        no = {"approval": {"action": "decline"}}
        refused = await peer.result("tools/call", stateless({"code": CODE}, inputResponses=no, requestState=state))
        assert (refused["isError"], refused["resultType"]) == (True, "complete")
        assert await jobs(peer) == []
