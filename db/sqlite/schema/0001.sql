-- Names are bytes: TEXT compares by memcmp here (collation BINARY).
-- Times are microseconds since the Unix epoch; deadline is in lease time.

CREATE TABLE resources (
    name    TEXT    PRIMARY KEY,
    version INTEGER NOT NULL,
    holder  TEXT    NOT NULL,  -- the id of the exclusive holder, or ''
    shared  INTEGER NOT NULL,  -- how many shared holders
    waiting INTEGER NOT NULL   -- how many claims wait
) WITHOUT ROWID;

CREATE TABLE claims (
    id        TEXT    PRIMARY KEY,
    resource  TEXT    NOT NULL,
    owner     TEXT    NOT NULL,
    mode      INTEGER NOT NULL,
    type      INTEGER NOT NULL,
    ttl       INTEGER NOT NULL,
    user_data TEXT,
    value     TEXT    NOT NULL,
    status    INTEGER NOT NULL,
    position  INTEGER NOT NULL,
    token     INTEGER NOT NULL,
    version   INTEGER NOT NULL,
    deadline  INTEGER NOT NULL,
    created   INTEGER NOT NULL,
    activated INTEGER NOT NULL,
    finished  INTEGER NOT NULL,
    reason    TEXT    NOT NULL
) WITHOUT ROWID;

-- Partial indexes: an uncontended lock is in none but claims_held while it is live.
CREATE INDEX claims_waiting  ON claims (resource, position) WHERE status = 1;
CREATE INDEX claims_held     ON claims (type, deadline)     WHERE status = 2;
CREATE INDEX claims_shared   ON claims (resource, deadline) WHERE status = 2 AND mode = 1;
CREATE INDEX claims_holding  ON claims (resource, position) WHERE status = 2 AND mode = 1;
CREATE INDEX claims_finished ON claims (finished, status)   WHERE status > 2;  -- status: to cover the count
-- For lists. Claims are made in the order of this index, so it costs next to nothing; an
-- index by resource or by owner would make every claim write pages of its own. A list by
-- resource or owner reads this one from the start, and never the table for a claim that it
-- leaves out.
CREATE INDEX claims_created  ON claims (created, id, resource, owner);

-- One row: the clock (see db.Clock), and the floor below which no resource's version
-- may come, because the row of a resource with that version was deleted.
CREATE TABLE meta (
    id     INTEGER PRIMARY KEY CHECK (id = 1),
    seen   INTEGER NOT NULL,
    outage INTEGER NOT NULL,
    floor  INTEGER NOT NULL
);
INSERT INTO meta (id, seen, outage, floor) VALUES (1, 0, 0, 0);
