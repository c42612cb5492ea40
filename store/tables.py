"""The one table of declarations: what each database file holds.

The schema (`sqlite.py`), the `my_*` session views of the query guard, `query_schema` and the reference are made from
it, so a column is described in one place (`rows.py`) and its table here.
"""

from __future__ import annotations

import types
from functools import cache
from typing import Annotated, Any, get_args, get_origin, get_type_hints

import msgspec

from . import rows
from .browsing import STATEMENTS

SqlType = type[str] | type[int] | type[float]


class Column(msgspec.Struct, frozen=True):
    """One column as `rows.py` declares it."""

    name: str
    type: SqlType
    nullable: bool
    description: str


class Index(msgspec.Struct, frozen=True):
    columns: tuple[str, ...]
    unique: bool = False


class Reference(msgspec.Struct, frozen=True):
    """A foreign key; the other column has the name of `other`'s primary key."""

    column: str
    other: str
    other_column: str


class Table(msgspec.Struct, frozen=True):
    """`search` names the columns that full text covers; `session` is the condition of its `my_` view, if it has one."""

    row: type[rows.Row]
    key: tuple[str, ...]
    indexes: tuple[Index, ...] = ()
    references: tuple[Reference, ...] = ()
    search: tuple[str, ...] = ()
    session: str | None = None

    @property
    def name(self) -> str:
        return self.row.table

    @property
    def columns(self) -> tuple[Column, ...]:
        return columns_of(self.row)


class Step(msgspec.Struct, frozen=True):
    """One migration: brings the tables up to the declarations, then runs its own statements, once."""

    name: str
    statements: tuple[str, ...] = ()


class Schema(msgspec.Struct, frozen=True):
    """What one kind of file holds, and the migrations that lead there; steps are only ever added."""

    name: str
    tables: tuple[Table, ...]
    steps: tuple[Step, ...]


@cache
def columns_of(row: type[rows.Row]) -> tuple[Column, ...]:
    """The columns of a row struct, in order."""
    hints = get_type_hints(row, include_extras=True)
    return tuple(_column(name, hints[name]) for name in row.__struct_fields__)


def _column(name: str, hint: Any) -> Column:
    assert get_origin(hint) is Annotated, name
    declared, description = get_args(hint)
    nullable = isinstance(declared, types.UnionType)
    held = next(part for part in get_args(declared) if part is not types.NoneType) if nullable else declared
    return Column(name, int if held is bool else held, nullable, description)


def _frame(column: str) -> Reference:
    return Reference(column, "frames", "frame_id")


def _version(column: str) -> Reference:
    return Reference(column, "artifact_versions", "version_id")


_PRODUCING_CELL = Reference("producing_cell_id", "cells", "cell_id")
_OF_SESSION = "root_frame_id = caller_session()"
_ARTIFACT_OF_SESSION = f"artifact_id IN (SELECT artifact_id FROM artifacts WHERE {_OF_SESSION})"
_EDGE_OF_SESSION = f"output_version_id IN (SELECT version_id FROM artifact_versions WHERE {_ARTIFACT_OF_SESSION})"

# As `cells.py` places them.
_PLACE_CELLS = """
    UPDATE cells SET rowid = seq + (SELECT frames.rowid << 24 FROM frames WHERE frames.frame_id = cells.frame_id)
"""

# A later table may refer to an earlier one only: they are made in this order.
RECORDS = Schema(
    name="cellhost-records",
    tables=(
        Table(
            rows.Frame,
            key=("frame_id",),
            indexes=(
                Index(("parent_id",)),
                Index(("parent_id", "status")),
                Index(("root_frame_id",)),
                Index(("status",)),
            ),
            references=(_frame("parent_id"), _frame("root_frame_id")),
            search=("name", "task_summary"),
            session=_OF_SESSION,
        ),
        Table(
            rows.Cell,
            key=("cell_id",),
            indexes=(Index(("frame_id", "seq"), unique=True), Index(("root_frame_id",))),
            references=(_frame("frame_id"), _frame("root_frame_id")),
            search=("code", "stdout_tail", "stderr_tail"),
            session=_OF_SESSION,
        ),
        Table(
            rows.Job,
            key=("exec_id",),
            indexes=(
                Index(("cell_id",), unique=True),
                Index(("key",), unique=True),
                Index(("frame_id",)),
                Index(("root_frame_id",)),
                Index(("status",)),
            ),
            references=(
                Reference("cell_id", "cells", "cell_id"),
                _frame("frame_id"),
                _frame("root_frame_id"),
            ),
            session=_OF_SESSION,
        ),
        Table(
            rows.Artifact,
            key=("artifact_id",),
            indexes=(Index(("root_frame_id", "filename"), unique=True),),
            references=(_frame("root_frame_id"),),
            session=_OF_SESSION,
        ),
        Table(
            rows.Version,
            key=("version_id",),
            indexes=(
                Index(("artifact_id", "ordinal"), unique=True),
                Index(("producing_cell_id",)),
                Index(("frame_id",)),
                Index(("checksum",)),
            ),
            references=(
                Reference("artifact_id", "artifacts", "artifact_id"),
                _PRODUCING_CELL,
                _frame("frame_id"),
            ),
            session=_ARTIFACT_OF_SESSION,
        ),
        Table(
            rows.Edge,
            key=("input_version_id", "output_version_id"),
            indexes=(Index(("output_version_id", "input_version_id")), Index(("producing_cell_id",))),
            references=(_version("input_version_id"), _version("output_version_id"), _PRODUCING_CELL),
            session=_EDGE_OF_SESSION,
        ),
    ),
    steps=(
        Step("tables"),
        Step("cell_outputs"),
        Step("job_sessions"),
        Step("paths_of_versions"),
        Step("cells_in_order_of_frames", (_PLACE_CELLS, "INSERT INTO cells_fts (cells_fts) VALUES ('rebuild')")),
        Step("views", STATEMENTS),
        Step("roots_by_status"),
    ),
)

_FIRST_RULES = """
    INSERT INTO permission_rules (rule_id, scope, scope_id, tool, pattern, decision, created_at, updated_at)
    SELECT 'perm-' || lower(hex(randomblob(6))), 'global', '', value, '*', 'allow', now, now
    FROM json_each('["write_file", "edit_file", "save_artifact"]'),
         (SELECT CAST(strftime('%s', 'now') AS INTEGER) * 1000 AS now)
"""

CONTROL = Schema(
    name="cellhost-control",
    tables=(
        Table(rows.Setting, key=("key",)),
        Table(rows.Project, key=("project_id",)),
        Table(rows.FrameHome, key=("frame_id",), indexes=(Index(("project_id",)),)),
        Table(
            rows.Session,
            key=("root_frame_id",),
            indexes=(Index(("workspace", "project_id", "last_seen_at")),),
        ),
        Table(
            rows.Rule,
            key=("rule_id",),
            indexes=(Index(("scope", "scope_id", "tool", "pattern"), unique=True), Index(("tool",))),
        ),
        Table(
            rows.Request,
            key=("request_id",),
            indexes=(Index(("state", "expires_at")), Index(("root_frame_id", "tool", "target_hash"))),
        ),
        Table(rows.HostCall, key=("call_id",), indexes=(Index(("at",)), Index(("method",)))),
        Table(rows.Server, key=("server_id",)),
    ),
    steps=(Step("tables"), Step("first_rules", (_FIRST_RULES,))),
)


def session_views() -> dict[str, str]:
    """The `my_*` views of records.db: name → SELECT; each calls `caller_session()`, the caller's root frame."""
    return {
        f"my_{table.name}": (
            f"SELECT {', '.join(column.name for column in table.columns)} FROM {table.name} WHERE {table.session}"
        )
        for table in _viewed()
    }


def query_schema() -> dict[str, list[str]]:
    """What `query` offers: `{table: [column, …]}` for the tables of records.db and their session views."""
    tables = {table.name: [column.name for column in table.columns] for table in RECORDS.tables}
    return tables | {f"my_{table.name}": tables[table.name] for table in _viewed()}


def _viewed() -> list[Table]:
    return [table for table in RECORDS.tables if table.session]
