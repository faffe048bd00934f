-- Sessions. A claim that is bound to a session has no deadline of its own.
ALTER TABLE claims ADD COLUMN session VARBINARY(128) NOT NULL DEFAULT '';
-- For how many microseconds the claim may wait without anybody asking about it; 0 for ever.
ALTER TABLE claims ADD COLUMN wait_ttl BIGINT NOT NULL DEFAULT 0;
-- A claim that waits is now found by when it is to be aborted. It never was by its position.
ALTER TABLE claims MODIFY COLUMN at BIGINT AS (CASE status
    WHEN 1 THEN CASE WHEN deadline > 0 THEN deadline ELSE 9223372036854775807 END
    WHEN 2 THEN deadline ELSE finished END) STORED;

CREATE TABLE IF NOT EXISTS sessions (
    id       VARBINARY(128)  NOT NULL,
    owner    VARBINARY(1024) NOT NULL,
    secret   VARBINARY(32)   NOT NULL,  -- its SHA-256
    ttl      BIGINT          NOT NULL,
    server   VARBINARY(40)   NOT NULL,  -- that it is attached to, or ''
    attached BIGINT          NOT NULL,  -- when, in lease time; 0 while it is detached
    deadline BIGINT          NOT NULL,  -- in lease time; 0 while it is attached
    created  BIGINT          NOT NULL,
    version  BIGINT UNSIGNED NOT NULL,
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

-- The waiting claims of each owner, of those without a session. Servers that have not been
-- upgraded yet leave rows behind: the claim says whether it waits.
CREATE TABLE IF NOT EXISTS owner_waits (
    owner VARBINARY(1024) NOT NULL,
    claim VARBINARY(128)  NOT NULL,
    PRIMARY KEY (owner, claim)
) ENGINE = InnoDB ROW_FORMAT = DYNAMIC;
INSERT IGNORE INTO owner_waits (owner, claim) SELECT owner, id FROM claims WHERE phase = 1 AND owner <> '';

-- The changes of a commit: see feed.go. NULL in rows of servers that have not been upgraded.
ALTER TABLE feed ADD COLUMN changes MEDIUMBLOB;
