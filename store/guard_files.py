"""When the file itself is the trouble: what it is instead of a readable SQLite database, and what to do."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from .guard_process import Head

_SQLITE = b"SQLite format 3\0"
_WAL_VERSION_AT = 19  # the header's read version: 2 means write-ahead log
_OTHER_KINDS = (
    (0, b"PAR1", "a Parquet file", "load it first, e.g. pandas.read_parquet(…).to_sql(…), and open the result"),
    (
        8,
        b"DUCK",
        "a DuckDB database",
        "export it with DuckDB's sqlite extension (ATTACH … (TYPE sqlite)) and open that",
    ),
    (0, b"ARROW1", "an Arrow file", "load it first, e.g. with pandas.read_feather(…).to_sql(…), and open the result"),
    (0, b"PK\x03\x04", "a zip archive or a spreadsheet", "unpack it, or load it with pandas.read_excel(…).to_sql(…)"),
    (0, b"\x1f\x8b", "gzip-compressed", "decompress it first"),
    (0, b"** This file contains an SQLite 2", "an SQLite 2 database", "convert it with sqlite3's predecessor tools"),
)
_TEXT = "text, such as CSV, JSON or SQL, not a database"
_TEXT_HINT = (
    "import it first: `sqlite-utils insert data.db rows FILE --csv` (or --tsv, --nl), or `sqlite3 data.db < FILE`"
)


def file_fault(head: Head, file_name: str) -> tuple[str, str]:
    """Message and hint for an outcome that names the file; neither has a folder in it."""
    name = head.name or ""
    start = bytes.fromhex(head.first_bytes)
    if name == "missing":
        return f"there is no database file {file_name}", "check its path and that its folder may be entered"
    if name == "not_a_file":
        return f"{file_name} is not a regular file", "give the path of an SQLite database file"
    if name == "replaced":
        return f"{file_name} is being replaced or its schema changes all the time", "try again"
    if name.startswith(("SQLITE_BUSY", "SQLITE_LOCKED", "SQLITE_PROTOCOL")):
        return (
            f"{file_name} is locked by another program",
            "try again; WAL mode lets readers and a writer work together",
        )
    if name.startswith("SQLITE_NOTADB"):
        return _not_a_database(start, file_name)
    if name.startswith("SQLITE_CORRUPT"):
        return f"{file_name} is damaged: {head.message}", "recover what is left with `sqlite3 FILE .recover`"
    if name.startswith("SQLITE_READONLY_ROLLBACK"):
        return f"{file_name} has an unfinished transaction", "open it once with a program that may write to it"
    if start.startswith(_SQLITE) and start[_WAL_VERSION_AT] == 2:
        hint = "copy the file elsewhere, or have its owner run PRAGMA journal_mode=delete"
        return f"{file_name} is in WAL mode and its folder cannot be written, so it cannot be read there", hint
    return f"{file_name} cannot be read: {head.message}", "check that the file may be read"


def _not_a_database(start: bytes, file_name: str) -> tuple[str, str]:
    for offset, mark, kind, hint in _OTHER_KINDS:
        if start[offset:].startswith(mark):
            return f"{file_name} is {kind}, not an SQLite database", hint
    if start.startswith(_SQLITE):
        return f"{file_name} has a damaged header", "recover what is left with `sqlite3 FILE .recover`"
    if _is_text(start):
        return f"{file_name} is {_TEXT}", _TEXT_HINT
    return f"{file_name} is encrypted or not an SQLite database", "decrypt it first, e.g. with sqlcipher_export()"


def _is_text(start: bytes) -> bool:
    try:
        text = start.decode()
    except UnicodeDecodeError as error:
        if error.start < len(start) - 3:  # the last character may be cut
            return False
        text = start[: error.start].decode()
    return all(character.isprintable() or character in "\t\r\n\ufeff" for character in text)
