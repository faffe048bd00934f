-- Names are bytes: VARBINARY, so that case and trailing spaces count.
-- Times are microseconds since the Unix epoch; deadlines are in lease time. Durations are microseconds.

CREATE TABLE IF NOT EXISTS resources (
    name    VARBINARY(1024) NOT NULL,
    version BIGINT UNSIGNED NOT NULL,
    holder  VARBINARY(128)  NOT NULL,            -- the id of the exclusive holder, which takes all units, or ''
    shared  INT             NOT NULL,            -- how many other holders
    taken   BIGINT UNSIGNED NOT NULL DEFAULT 0,  -- how many units these take
    units   INT UNSIGNED    NOT NULL DEFAULT 0,  -- how many units there are; 0: unlimited
    waiting INT             NOT NULL,            -- how many claims wait
    PRIMARY KEY (name)
) ENGINE = InnoDB ROW_FORMAT = DYNAMIC;

CREATE TABLE IF NOT EXISTS claims (
    id        VARBINARY(128)  NOT NULL,
    resource  VARBINARY(1024) NOT NULL,
    owner     VARBINARY(1024) NOT NULL,
    take      INT UNSIGNED    NOT NULL,  -- how many units it takes; 0: all
    units     INT UNSIGNED    NOT NULL,  -- how many units there are; 0: unlimited
    type      TINYINT         NOT NULL,
    ttl       BIGINT          NOT NULL,
    user_data MEDIUMBLOB,
    value     MEDIUMBLOB      NOT NULL,
    status    TINYINT         NOT NULL,
    position  BIGINT UNSIGNED NOT NULL,
    token     BIGINT UNSIGNED NOT NULL,
    version   BIGINT UNSIGNED NOT NULL,
    deadline  BIGINT          NOT NULL,  -- 0 for a claim in a session
    created   BIGINT          NOT NULL,
    activated BIGINT          NOT NULL,
    finished  BIGINT          NOT NULL,
    reason    VARBINARY(1024) NOT NULL,
    session   VARBINARY(128)  NOT NULL DEFAULT '',
    wait_ttl  BIGINT          NOT NULL DEFAULT 0,   -- 0: it may wait forever
    identity  VARBINARY(1024) NOT NULL DEFAULT '',  -- the authenticated caller that made the claim
    ended_by  VARBINARY(1024) NOT NULL DEFAULT '',  -- the authenticated caller that ended it
    allow_deadlock BOOLEAN    NOT NULL DEFAULT FALSE,
    -- What stands in for partial indexes. phase and at: finished claims (phase 0) by the time of their end, waiting
    -- ones (1) by the time at which they are aborted, active ones (2 + type) by their deadline. line and sharing: the
    -- resource, of claims that wait and of claims that hold a part of the units. Both are NULL for an uncontended lock, so
    -- that its index entries cost nothing.
    phase   TINYINT AS (CASE status WHEN 1 THEN 1 WHEN 2 THEN 2 + type ELSE 0 END) STORED,
    at      BIGINT  AS (CASE status
        WHEN 1 THEN CASE WHEN deadline > 0 THEN deadline ELSE 9223372036854775807 END
        WHEN 2 THEN deadline ELSE finished END) STORED,
    line    VARBINARY(1024) AS (CASE WHEN status = 1 THEN resource END) STORED,
    sharing VARBINARY(1024) AS (CASE WHEN status = 2 AND take > 0 THEN resource END) STORED,
    -- What quotas count: the identity of a live claim, behind 'a' if it is active and 'w' if it waits. NULL for claims
    -- without an identity, and for claims that have ended.
    live_of VARBINARY(1025) AS (CASE WHEN identity = '' THEN NULL
        WHEN status = 1 THEN CONCAT('w', identity) WHEN status = 2 THEN CONCAT('a', identity) END) STORED,
    PRIMARY KEY (id),
    KEY claims_phase (phase, at),
    -- Waiting claims and shared holders, both by position: line is NULL for the one, sharing for the other.
    KEY claims_line (line, sharing, position),
    KEY claims_sharing (sharing, deadline),
    KEY claims_live_of (live_of),
    -- For lists. Claims are made in the order of this index. A list by resource or owner
    -- reads it from the start, and never the table for a claim that it leaves out.
    KEY claims_created (created, id, resource, owner)
) ENGINE = InnoDB ROW_FORMAT = DYNAMIC;

CREATE TABLE IF NOT EXISTS sessions (
    id             VARBINARY(128)  NOT NULL,
    owner          VARBINARY(1024) NOT NULL,
    secret         VARBINARY(32)   NOT NULL,  -- its SHA-256
    ttl            BIGINT          NOT NULL,
    server         VARBINARY(40)   NOT NULL,  -- the server that it is attached to, or ''
    attached       BIGINT          NOT NULL,  -- when, in lease time; 0 while it is detached
    deadline       BIGINT          NOT NULL,  -- 0 while it is attached
    created        BIGINT          NOT NULL,
    version        BIGINT UNSIGNED NOT NULL,
    identity       VARBINARY(1024) NOT NULL,  -- the authenticated caller that opened it
    -- How a session ends that has more claims than one transaction ends; 0 and '' for one that does not end.
    ending_active  TINYINT         NOT NULL,
    ending_waiting TINYINT         NOT NULL,
    ending_reason  VARBINARY(1024) NOT NULL,
    ended_by       VARBINARY(1024) NOT NULL,
    PRIMARY KEY (id),
    KEY sessions_server (server),
    KEY sessions_deadline (deadline)
) ENGINE = InnoDB ROW_FORMAT = DYNAMIC;

-- The servers that sessions are attached to, and when each last showed that it is alive, in
-- lease time.
CREATE TABLE IF NOT EXISTS servers (
    name  VARBINARY(40)   NOT NULL,
    seen  BIGINT          NOT NULL,
    beats BIGINT UNSIGNED NOT NULL DEFAULT 0,
    PRIMARY KEY (name)
) ENGINE = InnoDB;

-- The live claims of each session. A table, because an index would have an entry for every
-- claim without a session too.
CREATE TABLE IF NOT EXISTS session_claims (
    claim   VARBINARY(128) NOT NULL,
    session VARBINARY(128) NOT NULL,
    PRIMARY KEY (claim),
    KEY session_claims_session (session)
) ENGINE = InnoDB ROW_FORMAT = DYNAMIC;

-- The waiting claims of each owner, without the claims of sessions.
CREATE TABLE IF NOT EXISTS owner_waits (
    owner VARBINARY(1024) NOT NULL,
    claim VARBINARY(128)  NOT NULL,
    PRIMARY KEY (owner, claim)
) ENGINE = InnoDB ROW_FORMAT = DYNAMIC;

-- What the servers tell each other: one row or more for each commit, with its changes: see feed.go. A server numbers
-- its rows without gaps, so a reader misses none. A row also tells, after a connection broke during a commit, how
-- the commit ended: without changes, it was not done.
CREATE TABLE IF NOT EXISTS feed (
    server  VARBINARY(32)   NOT NULL,
    n       BIGINT UNSIGNED NOT NULL,
    at      BIGINT          NOT NULL,
    changes MEDIUMBLOB      NOT NULL,
    PRIMARY KEY (server, n)
) ENGINE = InnoDB ROW_FORMAT = DYNAMIC;

-- Readings of the clocks, so that a server that is restarted knows what is old.
CREATE TABLE IF NOT EXISTS readings (
    lease BIGINT NOT NULL,
    wall  BIGINT NOT NULL,
    PRIMARY KEY (lease)
) ENGINE = InnoDB;

-- The servers that share the database, as they announce themselves every few seconds: started by the server's own
-- clock, seen by the database's.
CREATE TABLE IF NOT EXISTS members (
    name    VARBINARY(64)  NOT NULL,
    host    VARBINARY(255) NOT NULL,
    version VARBINARY(255) NOT NULL,
    started BIGINT         NOT NULL,
    seen    BIGINT         NOT NULL,
    PRIMARY KEY (name)
) ENGINE = InnoDB;

-- One row: the clock (see db.Clock); the floor below which no resource's version may come, because the row of a
-- resource with that version was deleted; and the lease time before which nobody is granted anything, because the
-- database was restored from a backup, or 0.
CREATE TABLE IF NOT EXISTS meta (
    one        TINYINT         NOT NULL,
    seen       BIGINT          NOT NULL,
    outage     BIGINT          NOT NULL,
    floor      BIGINT UNSIGNED NOT NULL,
    quarantine BIGINT          NOT NULL DEFAULT 0,
    PRIMARY KEY (one)
) ENGINE = InnoDB;

INSERT IGNORE INTO meta (one, seen, outage, floor) VALUES (1, 0, 0, 0);
