"""Tools that read the records: schema, SQL, frames and lineage."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal, NotRequired, TypedDict, cast

import msgspec
from msgspec import Meta

from ..store.errors import NotFound
from ..store.lineage import Lineage, LineageGraph
from .budget import page_within
from .schema import LARGEST, result_schema
from .tool import Tool, resource_key

if TYPE_CHECKING:
    from collections.abc import Mapping

    from .call import Call
    from .schema import Schema

VersionId = Annotated[
    str,
    Meta(min_length=1, max_length=256, description="Id of a saved version of a file.", examples=["v-0123456789ab"]),
]
Cursor = Annotated[str, Meta(max_length=1000, description="`next_cursor` of the last answer, to go on after it.")]
DatabaseName = Annotated[
    str,
    Meta(
        min_length=1,
        max_length=64,
        description="Name of a user database given with --database. Default: the project's records.",
    ),
]


FrameState = Literal["ready", "processing", "done", "failed", "interrupted", "awaiting_user_response"]


class QuerySchemaParams(msgspec.Struct, frozen=True):
    database: DatabaseName | None = None


class QuerySchemaTool(Tool[QuerySchemaParams, dict[str, Any]]):
    name = "query_schema"
    title = "List tables and columns"
    description = (
        "List the tables that `query` can read, with their columns. Call it before writing SQL. Without arguments: "
        "the project's records (frames, cells, jobs, artifacts, artifact_versions, lineage_edges, and my_* views of "
        "this session's rows), as {table: [column]}. With `database`: that database's tables with column types, keys, "
        "references and estimated row counts."
    )
    bare_when_empty = True
    apart = True
    keyed = True
    go_on = "query: SELECT name, sql FROM sqlite_schema LIMIT … OFFSET …"

    def resource_keys(self, arguments: Mapping[str, Any]) -> tuple[str, ...]:
        del arguments
        return ("database:schema",)

    async def run(self, params: QuerySchemaParams, call: Call) -> dict[str, Any]:
        return await call.host.queries.schema(call.caller, params.database)


Parameters = Annotated[list[Any], Meta(max_length=1000)] | Annotated[dict[str, Any], Meta(max_length=1000)]


class QueryParams(msgspec.Struct, frozen=True):
    sql: Annotated[
        str,
        Meta(
            min_length=1,
            max_length=100_000,
            description="One read-only statement: SELECT, WITH, VALUES, EXPLAIN QUERY PLAN or a reading PRAGMA.",
            examples=["SELECT exec_id, status FROM jobs ORDER BY created_at DESC"],
        ),
    ]
    params: (
        Annotated[
            Parameters,
            Meta(
                description='Values to bind: an array for `?`, an object for `:name`. Scalars, or {"$blob": base64}.',
                examples=[["exec-0123456789ab"], {"status": "done"}],
            ),
        ]
        | None
    ) = None
    limit: (
        Annotated[
            int,
            Meta(ge=1, le=10_000, description="Return at most this many rows; without it, too many are an error."),
        ]
        | None
    ) = None
    df: (
        Annotated[bool, Meta(description="Answer {columns, rows} for a DataFrame; not together with format.")] | None
    ) = None
    format: (
        Annotated[
            Literal["records", "table"],
            Meta(description="records (default): [{column: value}]; table: {columns, types, rows, truncated, …}."),
        ]
        | None
    ) = None
    database: DatabaseName | None = None
    explain: Annotated[bool, Meta(description="Show the query plan instead of running the query.")] | None = None


class QueryTable(TypedDict):
    """The table form; `types` are the storage classes seen in each column."""

    columns: list[str]
    types: list[str]
    rows: list[list[Any]]
    row_count: int
    truncated: bool
    elapsed_ms: float


class ReadOnlyQueryTool(Tool[QueryParams, Any]):
    name = "query"
    title = "Run read-only SQL"
    description = (
        "Run one read-only SQLite statement over the project's records (default) or a user database, and get its rows. "
        "Nothing can be changed by it, so use it freely: which jobs ran, which files were saved, what came from what. "
        'Bind values with `params`. Integers beyond 2^53 come as {"$int"}, blobs as {"$blob": base64}. When an '
        "answer is truncated, go on with LIMIT/OFFSET in the SQL."
    )

    apart = True
    go_on = "LIMIT and OFFSET in the SQL"

    def resource_keys(self, arguments: Mapping[str, Any]) -> tuple[str, ...]:
        del arguments
        return ("database:query",)

    @classmethod
    def output_schema(cls) -> Schema:
        """The table form's: what a door with a budget gets."""
        return result_schema(QueryTable)

    async def run(self, params: QueryParams, call: Call) -> Any:
        return await call.host.queries.run(params, call)


class FramesResult(TypedDict):
    mode: NotRequired[Literal["search", "browse"]]
    pattern: NotRequired[str]
    frames: NotRequired[list[dict[str, Any]]]
    next_cursor: NotRequired[str | None]
    frame: NotRequired[dict[str, Any]]
    cells: NotRequired[list[dict[str, Any]]]
    children: NotRequired[list[dict[str, Any]]]
    page: NotRequired[int]
    page_size: NotRequired[int]
    n_pages: NotRequired[int]
    total_cells: NotRequired[int]
    last_page: NotRequired[bool]


class FramesParams(msgspec.Struct, frozen=True):
    frame_id: Annotated[str, Meta(max_length=256, description="Show this frame with its cells.")] | None = None
    pattern: (
        Annotated[
            str,
            Meta(
                min_length=1,
                max_length=1000,
                description="Words that must all be there, in names and summaries or in a cell's code and output; "
                "the beginning of a word is enough.",
            ),
        ]
        | None
    ) = None
    project_id: (
        Annotated[str, Meta(min_length=1, max_length=64, description="Another project (harness only).")] | None
    ) = None
    status: Annotated[FrameState, Meta(description="Only frames of this status.")] | None = None
    roots_only: (
        Annotated[bool, Meta(description="Only sessions, not the frames in them (default: true, but not in a search).")]
        | None
    ) = None
    page: Annotated[int, Meta(ge=0, le=LARGEST, description="Page of cells of `frame_id`, from 0.")] | None = None
    page_size: Annotated[int, Meta(ge=1, le=200, description="Cells a page (default 50).")] | None = None
    limit: Annotated[int, Meta(ge=1, le=200, description="Frames an answer (default 50).")] | None = None
    cursor: Cursor | None = None


class FramesTool(Tool[FramesParams, FramesResult]):
    name = "frames"
    title = "Browse and search past work"
    description = (
        "Find earlier work in this project: sessions, and the turns in them. With nothing: browse the newest sessions. "
        "With `pattern`: search names, summaries, code and output. With `frame_id`: that frame, its cells (code, "
        "status, output tails) and children. Go on with `cursor` (lists), or with `page` and the answer's `page_size` "
        "(cells)."
    )

    go_on = "cursor; for cells page, with the page_size of this answer"

    def resource_keys(self, arguments: Mapping[str, Any]) -> tuple[str, ...]:
        return (resource_key("frame", arguments.get("frame_id") or arguments.get("project_id") or "catalog"),)

    async def run(self, params: FramesParams, call: Call) -> FramesResult:
        project_id = params.project_id or call.caller.project_id
        if project_id != call.caller.project_id and not await _reachable(project_id, call):
            raise NotFound("no such project", hint="leave project_id out: this session's project is used")
        records = await call.host.store.project(project_id)

        async def page(limit: int) -> Any:
            if params.frame_id is not None:
                return await call.host.store.run(
                    records.frames.detail, params.frame_id, page=params.page or 0, page_size=limit
                )
            if params.pattern is not None:
                return await call.host.store.run(
                    records.frames.search,
                    params.pattern,
                    status=params.status,
                    roots_only=bool(params.roots_only),
                    limit=limit,
                    cursor=params.cursor,
                )
            return await call.host.store.run(
                records.frames.browse,
                status=params.status,
                roots_only=params.roots_only is not False,
                limit=limit,
                cursor=params.cursor,
            )

        asked = (params.page_size if params.frame_id is not None else params.limit) or 50
        found = await page_within(call, asked, page)
        if found.get("page_size", asked) < asked:  # the next page of the size that was asked for would leave cells out
            found["truncated"] = True
        return cast("FramesResult", found)


async def _reachable(project_id: str, call: Call) -> bool:
    """Whether the caller may look into another project, and there is one: looking begins none."""
    store = call.host.store
    return call.caller.trusted and store.exists() and await store.run(store.store.has_project, project_id)


class LineageGetParams(msgspec.Struct, frozen=True):
    version_id: VersionId


class LineageGetTool(Tool[LineageGetParams, Lineage]):
    name = "lineage_get"
    title = "Where a saved file came from"
    description = (
        "Tell how one saved version was made: its file name and checksum, the frame and the job's code that made it, "
        "and the versions it was made from. For the whole ancestry use `lineage_graph`."
    )
    bare = "version_id"
    go_on = "query: SELECT substr(code, …) FROM jobs"

    def resource_keys(self, arguments: Mapping[str, Any]) -> tuple[str, ...]:
        return (resource_key("lineage", arguments["version_id"]),)

    async def run(self, params: LineageGetParams, call: Call) -> Lineage:
        records = await call.host.store.project(call.caller.project_id)
        return await call.host.store.run(records.lineage.get, params.version_id)


class LineageGraphParams(msgspec.Struct, frozen=True):
    version_id: VersionId
    direction: (
        Annotated[Literal["up", "down"], Meta(description="up (default): what it came from; down: what came from it.")]
        | None
    ) = None
    max_depth: Annotated[int, Meta(ge=0, le=100, description="Steps from the start (default 32).")] | None = None
    max_nodes: Annotated[int, Meta(ge=1, le=10_000, description="Versions at most (default 500).")] | None = None


class LineageGraphTool(Tool[LineageGraphParams, LineageGraph]):
    name = "lineage_graph"
    title = "Ancestry of a saved file"
    description = (
        "Walk the lineage of a saved version, up to everything it was made from or down to everything made from it. In "
        "each edge `from` is the input and `to` the output. `truncated` with a `reason` when a limit cut the walk."
    )
    go_on = "max_depth and max_nodes, starting from one of the nodes"
    DEFAULT_DEPTH: ClassVar[int] = 32
    DEFAULT_NODES: ClassVar[int] = 500

    def resource_keys(self, arguments: Mapping[str, Any]) -> tuple[str, ...]:
        return (resource_key("lineage", arguments["version_id"]),)

    async def run(self, params: LineageGraphParams, call: Call) -> LineageGraph:
        records = await call.host.store.project(call.caller.project_id)
        depth = self.DEFAULT_DEPTH if params.max_depth is None else params.max_depth
        nodes = self.DEFAULT_NODES if params.max_nodes is None else params.max_nodes

        async def walk(most: int) -> LineageGraph:
            return await call.host.store.run(
                records.lineage.graph,
                params.version_id,
                direction=params.direction or "up",
                max_depth=depth,
                max_nodes=most,
            )

        return await page_within(call, nodes, walk)
