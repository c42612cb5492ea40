"""What a statement may do and how much it may use: the lists and limits a worker enforces.

The worker knows none of this by itself; it is sent the policy when it starts (design section "The query guard").
A name that is not here is denied.
"""

from __future__ import annotations

import msgspec

MIB = 1 << 20
MAX_COLUMNS = 200
MAX_PARAMS = 1000
MAX_SQL_BYTES = 400_000

READING_PRAGMAS = (
    "table_info", "table_xinfo", "table_list", "index_list", "index_info", "index_xinfo", "foreign_key_list",
)  # fmt: skip

# No load_extension, fts3_tokenizer (a pointer), randomblob, zeroblob (memory), sqlite_*, changes, last_insert_rowid.
FUNCTIONS = tuple(
    """
    -> ->> abs acos acosh asin asinh atan atan2 atanh avg bm25 caller_session ceil ceiling char coalesce concat
    concat_ws cos cosh count cume_dist current_date current_time current_timestamp date datetime degrees dense_rank
    exp first_value floor format glob group_concat hex highlight if ifnull iif instr json json_array
    json_array_length json_error_position json_extract json_group_array json_group_object json_insert json_object
    json_patch json_pretty json_quote json_remove json_replace json_set json_type json_valid jsonb jsonb_array
    jsonb_extract jsonb_group_array jsonb_group_object jsonb_insert jsonb_object jsonb_patch jsonb_remove
    jsonb_replace jsonb_set julianday lag last_value lead length like likelihood likely ln log log10 log2 lower
    ltrim match matchinfo max median min mod nth_value ntile nullif octet_length offsets percent_rank percentile
    percentile_cont percentile_disc pi pow power printf quote radians random rank replace round row_number rtrim
    sign sin sinh snippet soundex sqrt strftime string_agg substr substring subtype sum tan tanh time timediff total
    trim trunc typeof unhex unicode unixepoch unistr unistr_quote unlikely upper
    """.split()  # noqa: SIM905  a hundred quoted names would hide which is missing
)


# SQLITE_LIMIT_COLUMN keeps its default: lowered, it also refuses to open a file that has a wider table.
LIMITS = {
    "SQL_LENGTH": MAX_SQL_BYTES,
    "EXPR_DEPTH": 100,
    "COMPOUND_SELECT": 50,
    "VDBE_OP": 50_000,
    "FUNCTION_ARG": 32,
    "LIKE_PATTERN_LENGTH": 256,
    "VARIABLE_NUMBER": MAX_PARAMS,
    "TRIGGER_DEPTH": 1,
    "ATTACHED": 0,
    "WORKER_THREADS": 0,
}
RESOURCES = {"AS": 1024 * MIB, "FSIZE": 64 * MIB, "NOFILE": 24, "CORE": 0}


class Policy(msgspec.Struct, frozen=True):
    """Lists by name; `limits` by SQLITE_LIMIT_ suffix, `resources` by RLIMIT_ suffix, in bytes or counts."""

    functions: tuple[str, ...] = FUNCTIONS
    pragmas: tuple[str, ...] = (*READING_PRAGMAS, "data_version")  # FTS5 asks for data_version itself
    table_functions: tuple[str, ...] = ("json_each", "json_tree", *(f"pragma_{name}" for name in READING_PRAGMAS))
    modules: tuple[str, ...] = ("fts3", "fts4", "fts5", "fts4aux", "fts5vocab", "rtree", "rtree_i32")
    limits: dict[str, int] = msgspec.field(default_factory=LIMITS.copy)
    resources: dict[str, int] = msgspec.field(default_factory=RESOURCES.copy)
