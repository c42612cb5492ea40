"""One struct a table: its fields are the columns, in order, with a line on what each holds.

Times are milliseconds since the epoch; a field that may be `None` is a column that may be NULL. `tables.py` makes
the schema, the session views and `query_schema` of these.
"""

from __future__ import annotations

from typing import Annotated, ClassVar

import msgspec

from .ids import now_ms


class Row(msgspec.Struct, frozen=True, kw_only=True):
    """A row of the table named by `table`."""

    table: ClassVar[str]


class Frame(Row, frozen=True, kw_only=True):
    table = "frames"
    frame_id: Annotated[str, "this frame"]
    parent_id: Annotated[str | None, "the frame it was made in"] = None
    root_frame_id: Annotated[str, "the session it belongs to; its own id for a root"]
    kind: Annotated[str, "session, turn, job, …"]
    name: Annotated[str | None, "what people call it"] = None
    task_summary: Annotated[str | None, "what it is about"] = None
    model: Annotated[str | None, "the model that worked in it"] = None
    status: Annotated[str, "ready, processing, done, failed, interrupted or awaiting_user_response"]
    depth: Annotated[int, "0 for a root"]
    workspace: Annotated[str | None, "the folder its files are in"] = None
    created_at: Annotated[int, "when it was made"]
    updated_at: Annotated[int, "when it last changed"]


class Cell(Row, frozen=True, kw_only=True):
    table = "cells"
    cell_id: Annotated[str, "this cell"]
    frame_id: Annotated[str, "the frame it ran in"]
    root_frame_id: Annotated[str, "that frame's session"]
    seq: Annotated[int, "its place among the frame's cells, from 1"]
    origin: Annotated[str, "who asked for it: agent, user, …"]
    language: Annotated[str, "python, bash, …"]
    code: Annotated[str, "the code as it was given"]
    code_hash: Annotated[str, "SHA-256 of the code, hex"]
    status: Annotated[str, "the job's status"]
    error_name: Annotated[str | None, "class of the exception that ended it"] = None
    error_value: Annotated[str | None, "that exception's message"] = None
    error_traceback: Annotated[str | None, "its traceback, bounded: a later server answers exec_peek too"] = None
    result_text: Annotated[str | None, "text of the last expression"] = None
    outputs: Annotated[str | None, "what it displayed, JSON: [{mime, artifact_version_id, text, at}]"] = None
    stdout_tail: Annotated[str | None, "the end of what it printed"] = None
    stderr_tail: Annotated[str | None, "the end of its error output"] = None
    started_at: Annotated[int | None, "when its code began to run"] = None
    ended_at: Annotated[int | None, "when it ended"] = None
    wall_s: Annotated[float | None, "seconds it took"] = None
    cpu_s: Annotated[float | None, "processor seconds it used"] = None
    peak_rss_kb: Annotated[int | None, "most memory it held, KiB"] = None


class Job(Row, frozen=True, kw_only=True):
    table = "jobs"
    exec_id: Annotated[str, "this job"]
    cell_id: Annotated[str, "the cell with its code and result"]
    frame_id: Annotated[str, "the frame it ran in"]
    root_frame_id: Annotated[str, "that frame's session"]
    label: Annotated[str | None, "what the caller called it"] = None
    status: Annotated[str, "queued, starting, running, done, failed, interrupted, timeout, killed, died or lost"]
    kernel: Annotated[str | None, "the kernel or interpreter it ran in"] = None
    session: Annotated[str | None, "the session whose kernel it ran in; none for a job with a kernel of its own"] = None
    server_id: Annotated[str, "the server that ran it"]
    timeout_s: Annotated[float | None, "its time limit, seconds"] = None
    memory_mb: Annotated[int | None, "its memory limit, MiB"] = None
    key: Annotated[str | None, "idempotency key: the same key is the same job"] = None
    stdout_bytes: Annotated[int, "size of its output log"] = 0
    stderr_bytes: Annotated[int, "size of its error log"] = 0
    exit_code: Annotated[int | None, "exit code of a kernel that died"] = None
    exit_signal: Annotated[int | None, "signal that ended a kernel that died"] = None
    exit_reason: Annotated[str | None, "why it died, as far as can be told"] = None
    ended_by: Annotated[str | None, "what ended it, where it did not end by itself"] = None
    note: Annotated[str | None, "what to know besides: whether it began in a fresh kernel after an earlier one"] = None
    progress_done: Annotated[float | None, "units done, as the job reports them"] = None
    progress_total: Annotated[float | None, "units in all"] = None
    progress_message: Annotated[str | None, "what it is doing"] = None
    created_at: Annotated[int, "when it was asked for"]
    started_at: Annotated[int | None, "when its code began to run"] = None
    ended_at: Annotated[int | None, "when it ended"] = None


class Artifact(Row, frozen=True, kw_only=True):
    table = "artifacts"
    artifact_id: Annotated[str, "this artifact"]
    root_frame_id: Annotated[str, "the session that saved it"]
    filename: Annotated[str, "its name, one an artifact in a session"]
    content_type: Annotated[str, "media type of the latest version"]
    priority: Annotated[int, "0 to 100, higher is shown first"] = 0
    latest_version_id: Annotated[str, "its newest version"]
    created_at: Annotated[int, "when its first version was saved"]
    updated_at: Annotated[int, "when its latest version was saved"]


class Version(Row, frozen=True, kw_only=True):
    table = "artifact_versions"
    version_id: Annotated[str, "this version"]
    artifact_id: Annotated[str, "the artifact it is a version of"]
    ordinal: Annotated[int, "1 is the oldest"]
    filename: Annotated[str, "the artifact's name at the time"]
    content_type: Annotated[str, "media type"]
    size_bytes: Annotated[int, "size of its bytes"]
    checksum: Annotated[str, "SHA-256 of its bytes, hex"]
    producing_cell_id: Annotated[str | None, "the cell that made it"] = None
    frame_id: Annotated[str, "the frame it was saved in"]
    source: Annotated[str, "how it came here: save, output, restore, …"]
    created_at: Annotated[int, "when it was saved"]
    path: Annotated[str | None, "the workspace file it was saved from, where a restored version goes back to"] = None


class Edge(Row, frozen=True, kw_only=True):
    table = "lineage_edges"
    input_version_id: Annotated[str, "the version that was read"]
    output_version_id: Annotated[str, "the version made from it"]
    producing_cell_id: Annotated[str | None, "the cell that made it"] = None
    created_at: Annotated[int, "when the output was saved"]


class Setting(Row, frozen=True, kw_only=True):
    table = "settings"
    key: Annotated[str, "name of the setting"]
    value: Annotated[str, "its value, JSON"]


class Project(Row, frozen=True, kw_only=True):
    table = "projects"
    project_id: Annotated[str, "this project, the name of its folder"]
    created_at: Annotated[int, "when its records were begun"]


class FrameHome(Row, frozen=True, kw_only=True):
    """Which project's file a frame is in, so that finding one opens no other project's file."""

    table = "frame_homes"
    frame_id: Annotated[str, "a frame"]
    project_id: Annotated[str, "the project whose records hold it"]


class Session(Row, frozen=True, kw_only=True):
    table = "sessions"
    root_frame_id: Annotated[str, "the session's root frame"]
    project_id: Annotated[str, "the project it belongs to"]
    workspace: Annotated[str, "the folder it works in"]
    created_at: Annotated[int, "when it began"]
    last_seen_at: Annotated[int, "when a server last used it"]


class Rule(Row, frozen=True, kw_only=True):
    table = "permission_rules"
    rule_id: Annotated[str, "this rule"]
    scope: Annotated[str, "global, project or conversation"]
    scope_id: Annotated[str, "the project or the session's root frame; empty for global"]
    tool: Annotated[str, "a tool's name, or * for all"]
    pattern: Annotated[str, "glob the call's target must match"]
    decision: Annotated[str, "allow, deny or ask"]
    created_at: Annotated[int, "when it was first set"]
    updated_at: Annotated[int, "when it was last set"]


class Request(Row, frozen=True, kw_only=True):
    table = "permission_requests"
    request_id: Annotated[str, "this request"]
    root_frame_id: Annotated[str, "the session whose call it is"]
    door: Annotated[str, "where the call came in"]
    tool: Annotated[str, "the tool it wants to use"]
    target: Annotated[str, "what on: the code, the path"]
    target_hash: Annotated[str, "SHA-256 of the target, hex"]
    preview: Annotated[str, "what a person is shown"]
    state: Annotated[str, "pending, allowed, denied, withdrawn, expired or spent"]
    created_at: Annotated[int, "when the call was made"]
    expires_at: Annotated[int, "until when it waits for an answer"]
    decided_at: Annotated[int | None, "when it was answered"] = None


class HostCall(Row, frozen=True, kw_only=True):
    table = "host_calls"
    call_id: Annotated[int | None, "place in the audit, rising"] = None
    at: Annotated[int, "when the call came"] = msgspec.field(default_factory=now_ms)
    door: Annotated[str, "stdio, kernel or in_process"]
    root_frame_id: Annotated[str | None, "the session it was made in"] = None
    exec_id: Annotated[str | None, "the job that made it"] = None
    method: Annotated[str, "the method called"]
    side_effect_class: Annotated[str | None, "the tool's class of effect"] = None
    resource_keys: Annotated[str, "what it touched, a JSON array"] = "[]"
    args_preview: Annotated[str, "its arguments, at most 500 characters, without contents and secrets"] = ""
    ok: Annotated[bool, "1 when it succeeded"]
    error_kind: Annotated[str | None, "kind of the error when it did not"] = None
    elapsed_us: Annotated[int, "microseconds it took"]
    request_id: Annotated[str | None, "the permission request it led to"] = None


class Server(Row, frozen=True, kw_only=True):
    table = "servers"
    server_id: Annotated[str, "this server"]
    pid: Annotated[int, "its process"]
    run_folder: Annotated[str, "its run folder, whose lock it holds while it lives"]
    started_at: Annotated[int, "when it started"]
