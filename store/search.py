"""Turns whatever a caller types into full-text queries that SQLite takes, and takes fast."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from .sqlite import Database

_MOST_TERMS = 100
_FOLDING = (
    "CREATE VIRTUAL TABLE IF NOT EXISTS temp.folding USING fts5(word)",
    "CREATE VIRTUAL TABLE IF NOT EXISTS temp.folding_terms USING fts5vocab(temp, folding, instance)",
)


class TextQuery(NamedTuple):
    """An FTS5 query, and whether it gives its first match without having listed all of them."""

    text: str
    begins_at_once: bool


def words_of(text: str) -> list[str]:
    """The words in a text, split where the tokeniser splits: a word of punctuation alone would match nothing."""
    return "".join(character if character.isalnum() else " " for character in text).split()


def match_all(words: list[str]) -> str:
    """An FTS5 query for texts with words that begin with each of `words`.

    match_all(["plot", "x"]) == '"plot"* AND "x"*'
    """
    return " AND ".join(f'"{word}"*' for word in words)


class Vocabulary:
    """The terms of a full-text table, to say in a query which of them begin with a word.

    SQLite lists every match of `"plot"*` before it gives the first, a tenth of a second for a word that is in most of
    a million cells; of `("plot" OR "plots")` it gives the first at once.
    """

    def __init__(self, database: Database, table: str) -> None:
        self._database = database
        self._table = table

    def match_all(self, words: list[str]) -> TextQuery | None:
        """As `match_all`, and None if one of the words begins no term there is."""
        vocabulary = f"fts5vocab(main, {self._table}, instance)"
        self._database.execute(f"CREATE VIRTUAL TABLE IF NOT EXISTS temp.{self._table}_terms USING {vocabulary}")
        parts: list[str] = []
        at_once = True
        for word in words:
            folded = self._folded(word)
            terms = None if folded is None else self._terms(folded)
            if terms is None:
                at_once = False
                parts.append(match_all([word]))
            elif terms:
                named = " OR ".join(f'"{term}"' for term in terms)
                parts.append(f"({named})")
            else:
                return None
        return TextQuery(" AND ".join(parts), at_once)

    def _folded(self, word: str) -> str | None:
        """The word as the index has it (ü is u there); None if it is several there, or none."""
        if word.isascii():
            return word.lower()
        # What others become only the tokeniser knows.
        for sql in _FOLDING:
            self._database.execute(sql)
        try:
            self._database.execute("INSERT INTO temp.folding (word) VALUES (?)", [word])
            terms = self._database.rows("SELECT term FROM temp.folding_terms")
        finally:
            self._database.execute("DELETE FROM temp.folding")
        return str(terms[0][0]) if len(terms) == 1 else None

    def _terms(self, prefix: str) -> list[str] | None:
        """The terms that begin with it; None if they are more than a query should name."""
        terms: list[str] = []
        at_least = prefix
        while len(terms) <= _MOST_TERMS:
            sql = f"SELECT term FROM temp.{self._table}_terms WHERE term >= ? LIMIT 1"
            term = self._database.value(sql, [at_least])
            if term is None or not term.startswith(prefix):
                return terms
            terms.append(term)
            at_least = f"{term}\0"  # the next text there can be
        return None
