"""Records in SQLite, immutable bytes, the query guard and the error tree."""
