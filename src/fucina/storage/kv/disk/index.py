"""Which blocks the segments hold, in SQLite: a hint where to look, never believed without the record itself.

Two connections: one reads on the engine's thread and never waits, one writes on the writer's. A commit is on the disk
when it returns.
"""

from __future__ import annotations

import contextlib
import sqlite3
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from fucina.storage.kv.disk.record import Record

_APPLICATION_ID = 0x46554B56
_READ_PATIENCE_S = 0.02
_WRITE_PATIENCE_S = 10.0
#: A larger index is not read at the start; damage then ends writing when it is met, and is mended by the next start.
_MOST_CHECKED_BYTES = 64 << 20
#: Rows are long, and after a while pages lie in no order: large ones make a cold start a few reads.
_PAGE_BYTES = 16384
_SCHEMA = """
CREATE TABLE segments (
    id INTEGER PRIMARY KEY, file TEXT NOT NULL UNIQUE, end INTEGER NOT NULL,
    CHECK (typeof(file) = 'text' AND typeof(end) = 'integer' AND end >= 0)
);
CREATE TABLE blocks (
    identity BLOB NOT NULL, name BLOB NOT NULL, parent BLOB NOT NULL, tokens BLOB NOT NULL,
    segment INTEGER NOT NULL, start INTEGER NOT NULL, last_used INTEGER NOT NULL,
    PRIMARY KEY (identity, name),
    CHECK (typeof(name) = 'blob' AND typeof(tokens) = 'blob' AND typeof(segment) = 'integer'
        AND typeof(start) = 'integer' AND start >= 0 AND typeof(last_used) = 'integer')
);
CREATE INDEX children ON blocks (identity, parent, tokens);
CREATE INDEX by_segment ON blocks (segment, last_used);
"""


class Child(NamedTuple):
    """A block behind its parent; `tokens` are packed."""

    name: bytes
    tokens: bytes


class Place(NamedTuple):
    """Where a record begins."""

    file: str
    start: int


class NewRow(NamedTuple):
    """A record that lies in a segment, and when it was used last, in ns since 1970."""

    record: Record
    segment: int
    start: int
    last_used: int


class Index:
    """The index of one directory, for every process and model that uses it. Raises sqlite3.Error whenever it likes."""

    def __init__(self, path: Path) -> None:
        with contextlib.ExitStack() as undo:
            self._writer = undo.enter_context(contextlib.closing(_connect(path, _WRITE_PATIENCE_S)))
            self._prepare(path)
            self._reader = undo.enter_context(contextlib.closing(_connect(path, _READ_PATIENCE_S)))
            self._reader.execute("PRAGMA query_only=1")
            undo.pop_all()

    def close(self) -> None:
        """Close both connections."""
        self._reader.close()
        self._writer.close()

    def place(self, identity: bytes, name: bytes) -> Place | None:
        """Where a block's record lies."""
        row = self._reader.execute(
            "SELECT file, start FROM blocks JOIN segments ON id = segment WHERE identity = ? AND name = ?",
            (identity, name),
        ).fetchone()
        if row is None or not (isinstance(row[0], str) and isinstance(row[1], int) and row[1] >= 0):
            return None
        return Place(*row)

    def neighbors(self, identity: bytes, parent: bytes, tokens: bytes) -> list[Child]:
        """Give the children of `parent` next to `tokens` in order: none agrees longer with them than one of these."""
        return _neighbors(self._reader, identity, parent, tokens)

    def segments(self) -> dict[str, tuple[int, int]]:
        """Give the files with their ids and the ends of what is committed in them."""
        rows = self._writer.execute("SELECT file, id, end FROM segments").fetchall()
        return {file: (segment, end) for file, segment, end in rows}

    def end(self, segment: int) -> int | None:
        """Where what is committed in a segment ends; None if it is gone."""
        row = self._writer.execute("SELECT end FROM segments WHERE id = ?", (segment,)).fetchone()
        return None if row is None else int(row[0])

    def total_bytes(self) -> int:
        """Give the bytes of all segments, as far as they are committed."""
        (total,) = self._writer.execute("SELECT COALESCE(SUM(end), 0) FROM segments").fetchone()
        return int(total)

    def coldest(self) -> list[tuple[int, str, int]]:
        """Give id, file and end of every segment, the one that was used least recently first."""
        return self._writer.execute(
            "SELECT id, file, end FROM segments LEFT JOIN blocks ON segment = id GROUP BY id ORDER BY MAX(last_used)"
        ).fetchall()

    def add_segment(self, file: str, end: int) -> int:
        """Enter a segment; give its id."""
        with self._transaction():
            segment = self._writer.execute("INSERT INTO segments (file, end) VALUES (?, ?)", (file, end)).lastrowid
        assert segment is not None
        return segment

    def drop_segment(self, segment: int) -> None:
        """Forget a segment and all that it holds."""
        with self._transaction():
            self._writer.execute("DELETE FROM blocks WHERE segment = ?", (segment,))
            self._writer.execute("DELETE FROM segments WHERE id = ?", (segment,))

    def cut_segment(self, segment: int, end: int) -> None:
        """Forget the blocks that begin at `end` or behind."""
        with self._transaction():
            self._writer.execute("DELETE FROM blocks WHERE segment = ? AND start >= ?", (segment, end))
            self._writer.execute("UPDATE segments SET end = ? WHERE id = ?", (end, segment))

    def covers(self, record: Record) -> bool:
        """Whether a block is known that holds all of a record's tokens, and maybe more."""
        near = _neighbors(self._writer, record.identity, record.parent, record.tokens)
        return any(child.tokens.startswith(record.tokens) for child in near)

    def commit(
        self,
        rows: Iterable[NewRow] = (),
        ends: Mapping[int, int] | None = None,
        used: Mapping[tuple[bytes, bytes], int] | None = None,
        gone: Iterable[tuple[bytes, bytes]] = (),
    ) -> None:
        """Enter new rows, ends of segments, uses, and what is gone, all or nothing; blocks by (identity, name).

        A block that a new one continues goes: nothing agrees longer with it than with the new one.
        """
        with self._transaction():
            self._writer.executemany("DELETE FROM blocks WHERE identity = ? AND name = ?", gone)
            for row in rows:
                self._insert(row)
            ends, used = ends or {}, used or {}
            self._writer.executemany(
                "UPDATE segments SET end = ? WHERE id = ?", [(end, segment) for segment, end in ends.items()]
            )
            self._writer.executemany(
                "UPDATE blocks SET last_used = MAX(last_used, ?) WHERE identity = ? AND name = ?",
                [(when, *block) for block, when in used.items()],
            )

    def _insert(self, row: NewRow) -> None:
        record = row.record
        for child in _neighbors(self._writer, record.identity, record.parent, record.tokens):
            if record.tokens.startswith(child.tokens):
                block = (record.identity, child.name)
                self._writer.execute("DELETE FROM blocks WHERE identity = ? AND name = ?", block)
        self._writer.execute(
            "INSERT OR REPLACE INTO blocks VALUES (?, ?, ?, ?, ?, ?, ?)",
            (record.identity, record.name, record.parent, record.tokens, row.segment, row.start, row.last_used),
        )

    @contextlib.contextmanager
    def _transaction(self) -> Iterator[None]:
        self._writer.execute("BEGIN IMMEDIATE")
        try:
            yield
            self._writer.execute("COMMIT")
        except BaseException:
            with contextlib.suppress(sqlite3.Error):
                self._writer.execute("ROLLBACK")
            raise

    def _prepare(self, path: Path) -> None:
        """Make the tables in an empty file; anything else that is not ours, or not sound, is a DatabaseError."""
        writer = self._writer
        (found,) = writer.execute("PRAGMA application_id").fetchone()
        (n_tables,) = writer.execute("SELECT COUNT(*) FROM sqlite_master").fetchone()
        if n_tables and found != _APPLICATION_ID:
            raise sqlite3.DatabaseError("the file holds another program's tables")
        writer.execute(f"PRAGMA page_size={_PAGE_BYTES}")  # of a new file
        writer.execute("PRAGMA journal_mode=WAL").fetchone()
        writer.execute("PRAGMA synchronous=FULL")
        if not n_tables:
            writer.executescript(f"BEGIN IMMEDIATE; {_SCHEMA} PRAGMA application_id={_APPLICATION_ID}; COMMIT;")
            return
        (schema,) = writer.execute("SELECT GROUP_CONCAT(sql, ' ') FROM sqlite_master").fetchone()
        if "".join(schema.split()) != "".join(_SCHEMA.replace(";", " ").split()):
            raise sqlite3.DatabaseError("its tables are not as they were made")
        if path.stat().st_size <= _MOST_CHECKED_BYTES and (
            report := writer.execute("PRAGMA quick_check(1)").fetchone()
        ) != ("ok",):
            raise sqlite3.DatabaseError(f"its own check says: {report[0]}")


class _Connection(sqlite3.Connection):
    """A connection to a file that may be damaged: its names, which stand in SQLite's messages, may be no UTF-8."""

    def execute(self, sql: str, parameters: Any = (), /) -> sqlite3.Cursor:
        try:
            return super().execute(sql, parameters)
        except UnicodeDecodeError as error:
            raise sqlite3.DatabaseError("its tables have names that are no UTF-8") from error


def _connect(path: Path, patience_s: float) -> sqlite3.Connection:
    """A connection that commits when told to, and may move from the thread that made it to the one that uses it."""
    connection = sqlite3.connect(
        path, timeout=patience_s, isolation_level=None, check_same_thread=False, factory=_Connection
    )
    connection.text_factory = lambda text: text.decode(errors="replace")  # a damaged name is not a segment's
    return connection


def _neighbors(connection: sqlite3.Connection, identity: bytes, parent: bytes, tokens: bytes) -> list[Child]:
    found = []
    for condition in ("tokens >= ? ORDER BY tokens", "tokens < ? ORDER BY tokens DESC"):
        row = connection.execute(
            f"SELECT name, tokens FROM blocks WHERE identity = ? AND parent = ? AND {condition} LIMIT 1",
            (identity, parent, tokens),
        ).fetchone()
        if row is not None and isinstance(row[0], bytes) and isinstance(row[1], bytes) and len(row[1]) % 4 == 0:
            found.append(Child(*row))
    return found
