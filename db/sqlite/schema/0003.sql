-- Sessions. A claim that is bound to a session has no deadline of its own. A claim that waits has
-- one if it has a wait TTL, in microseconds: for so long nobody may ask about it; 0 for ever.
ALTER TABLE claims ADD COLUMN session TEXT NOT NULL DEFAULT '';
ALTER TABLE claims ADD COLUMN wait_ttl INTEGER NOT NULL DEFAULT 0;
CREATE INDEX claims_session ON claims (session, status) WHERE status < 3 AND session <> '';
CREATE INDEX claims_patience ON claims (deadline) WHERE status = 1 AND deadline > 0;
CREATE INDEX claims_waiter  ON claims (owner)    WHERE status = 1 AND owner <> '' AND session = '';

CREATE TABLE sessions (
    id       TEXT    PRIMARY KEY,
    owner    TEXT    NOT NULL,
    secret   BLOB    NOT NULL,  -- its SHA-256
    ttl      INTEGER NOT NULL,
    server   TEXT    NOT NULL,  -- that it is attached to, or ''
    attached INTEGER NOT NULL,  -- when, in lease time; 0 while it is detached
    deadline INTEGER NOT NULL,  -- in lease time; 0 while it is attached
    created  INTEGER NOT NULL,
    version  INTEGER NOT NULL
) WITHOUT ROWID;
CREATE INDEX sessions_server   ON sessions (server);
CREATE INDEX sessions_deadline ON sessions (deadline) WHERE deadline > 0;

-- The servers that sessions are attached to, and when each last showed that it is alive, in
-- lease time.
CREATE TABLE servers (
    name TEXT    PRIMARY KEY,
    seen INTEGER NOT NULL
) WITHOUT ROWID;
