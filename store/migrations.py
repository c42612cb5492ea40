"""Brings a database file up to its declarations, with sqlite-utils: the only module that imports it.

Every step first adds what the declarations have and the file lacks, then runs its own statements. So a fresh file gets
everything at the first step, and a column declared later reaches old files with the step that is added for it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from sqlite_utils import Database, Migrations

if TYPE_CHECKING:
    import sqlite3

    from .tables import Schema, Step, Table


def migrate(connection: sqlite3.Connection, schema: Schema) -> None:
    """Applies what is pending, all or nothing; a second process waits and finds nothing left to do."""
    migrations = Migrations(schema.name)
    for step in schema.steps:
        _register(migrations, schema, step)
    database = Database(connection, recursive_triggers=False, execute_plugins=False)
    connection.execute("BEGIN IMMEDIATE")
    try:
        migrations.apply(database)
        connection.execute("COMMIT")
    finally:
        if connection.in_transaction:
            connection.rollback()


def _register(migrations: Migrations, schema: Schema, step: Step) -> None:
    @migrations(name=step.name)
    def _(database: Database) -> None:
        for table in schema.tables:
            _declare(database, table)
        for statement in step.statements:
            database.conn.execute(statement)


def _declare(database: Database, table: Table) -> None:
    if table.name not in database.table_names():
        _create(database, table)
    made = database.table(table.name)
    present = made.columns_dict
    for column in table.columns:
        if column.name not in present:
            made.add_column(column.name, column.type)
    for index in table.indexes:
        made.create_index(index.columns, unique=index.unique, if_not_exists=True)
    if table.search and f"{table.name}_fts" not in database.table_names():
        made.enable_fts(table.search)
        for statement in _search_triggers(table):
            database.conn.execute(statement)


def _create(database: Database, table: Table) -> None:
    columns: dict[str, Any] = {column.name: column.type for column in table.columns}
    references = [(each.column, each.other, each.other_column) for each in table.references]
    database.table(table.name).create(
        columns,
        pk=table.key[0] if len(table.key) == 1 else table.key,
        foreign_keys=references,
        not_null=[column.name for column in table.columns if not column.nullable],
        strict=True,
    )


def _search_triggers(table: Table) -> list[str]:
    """Keeps full text true, and leaves it alone when an update touches none of its columns."""
    name, columns = table.name, ", ".join(table.search)
    old = ", ".join(f"old.{column}" for column in table.search)
    new = ", ".join(f"new.{column}" for column in table.search)
    remove = f"INSERT INTO {name}_fts ({name}_fts, rowid, {columns}) VALUES ('delete', old.rowid, {old});"
    add = f"INSERT INTO {name}_fts (rowid, {columns}) VALUES (new.rowid, {new});"
    return [
        f"CREATE TRIGGER {name}_search_insert AFTER INSERT ON {name} BEGIN {add} END",
        f"CREATE TRIGGER {name}_search_delete AFTER DELETE ON {name} BEGIN {remove} END",
        f"CREATE TRIGGER {name}_search_update AFTER UPDATE OF {columns} ON {name} BEGIN {remove} {add} END",
    ]
