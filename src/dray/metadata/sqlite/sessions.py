"""The engine's half of a session: acts that ride in a group's transaction."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterable

from dray.metadata.sqlite.writer import ALIVE, Changed, SessionJob

ANY_EXPIRED = f"SELECT EXISTS (SELECT 1 FROM sessions WHERE NOT ({ALIVE}))"


def open_session(identity: int, domain: int, ttl: float) -> SessionJob:
    def act(connection: sqlite3.Connection, now: float, _changed: Changed) -> bool:
        connection.execute("INSERT INTO sessions VALUES (?, ?, ?, ?)", (identity, domain, ttl, now + ttl))
        return True

    return SessionJob(act)


def renew_session(identity: int) -> SessionJob:
    """Says whether the session still lives: one that ran out is never brought back."""

    def act(connection: sqlite3.Connection, now: float, _changed: Changed) -> bool:
        renewal = f"UPDATE sessions SET expires = ?1 + ttl WHERE id = ?2 AND {ALIVE}"
        return connection.execute(renewal, (now, identity)).rowcount == 1

    return SessionJob(act)


def remove_session(identity: int) -> SessionJob:
    def act(connection: sqlite3.Connection, _now: float, changed: Changed) -> bool:
        _remove(connection, [identity], changed)
        return True

    return SessionJob(act)


def reap_sessions() -> SessionJob:
    """Remove what has run out, whosever it was."""

    def act(connection: sqlite3.Connection, now: float, changed: Changed) -> bool:
        expired = connection.execute(f"SELECT id FROM sessions WHERE NOT ({ALIVE})", (now,)).fetchall()
        _remove(connection, [identity for (identity,) in expired], changed)
        return bool(expired)

    return SessionJob(act)


def _remove(connection: sqlite3.Connection, identities: Iterable[int], changed: Changed) -> None:
    chosen = (json.dumps(list(identities)),)
    of_chosen = "FROM records WHERE session IN (SELECT value FROM json_each(?1))"
    for domain, key in connection.execute(f"SELECT domain, key {of_chosen}", chosen).fetchall():
        keys = changed.setdefault(domain, {})
        if keys is not None:
            keys[key] = None
    connection.execute(f"DELETE {of_chosen}", chosen)
    connection.execute("DELETE FROM sessions WHERE id IN (SELECT value FROM json_each(?1))", chosen)
