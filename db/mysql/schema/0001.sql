-- Names are bytes: VARBINARY, so that case and trailing spaces count.
-- Times are microseconds since the Unix epoch; deadline is in lease time.

CREATE TABLE IF NOT EXISTS resources (
    name    VARBINARY(1024) NOT NULL,
    version BIGINT UNSIGNED NOT NULL,
    holder  VARBINARY(128)  NOT NULL,  -- the id of the exclusive holder, or ''
    shared  INT             NOT NULL,  -- how many shared holders
    waiting INT             NOT NULL,  -- how many claims wait
    PRIMARY KEY (name)
) ENGINE = InnoDB ROW_FORMAT = DYNAMIC;

CREATE TABLE IF NOT EXISTS claims (
    id        VARBINARY(128)  NOT NULL,
    resource  VARBINARY(1024) NOT NULL,
    owner     VARBINARY(1024) NOT NULL,
    mode      TINYINT         NOT NULL,
    type      TINYINT         NOT NULL,
    ttl       BIGINT          NOT NULL,
    user_data MEDIUMBLOB,
    value     MEDIUMBLOB      NOT NULL,
    status    TINYINT         NOT NULL,
    position  BIGINT UNSIGNED NOT NULL,
    token     BIGINT UNSIGNED NOT NULL,
    version   BIGINT UNSIGNED NOT NULL,
    deadline  BIGINT          NOT NULL,
    created   BIGINT          NOT NULL,
    activated BIGINT          NOT NULL,
    finished  BIGINT          NOT NULL,
    reason    VARBINARY(1024) NOT NULL,
    -- What stands in for partial indexes. phase and at: finished claims (phase 0) by the
    -- time of their end, waiting ones (1) by their position, active ones (2 + type) by
    -- their deadline. line and sharing: the resource, of claims that wait and of those
    -- that hold in shared mode; the end of an uncontended lock does not touch these.
    phase   TINYINT AS (CASE status WHEN 1 THEN 1 WHEN 2 THEN 2 + type ELSE 0 END) STORED,
    at      BIGINT  AS (CASE status WHEN 1 THEN CAST(position AS SIGNED) WHEN 2 THEN deadline ELSE finished END) STORED,
    line    VARBINARY(1024) AS (CASE WHEN status = 1 THEN resource END) STORED,
    sharing VARBINARY(1024) AS (CASE WHEN status = 2 AND mode = 1 THEN resource END) STORED,
    PRIMARY KEY (id),
    KEY claims_phase (phase, at),
    KEY claims_line (line, position),
    KEY claims_sharing (sharing, deadline),
    -- For lists. Claims are made in the order of this index. A list by resource or owner
    -- reads it from the start, and never the table for a claim that it leaves out.
    KEY claims_created (created, id, resource, owner)
) ENGINE = InnoDB ROW_FORMAT = DYNAMIC;

-- What the servers tell each other: one row for each commit, with the ids of the claims
-- that left the waiting line, separated by spaces. A server numbers its commits, one
-- after the other, so a reader misses none. The row also tells, after a connection broke
-- during a commit, how the commit ended.
CREATE TABLE IF NOT EXISTS feed (
    server VARBINARY(32)   NOT NULL,
    n      BIGINT UNSIGNED NOT NULL,
    at     BIGINT          NOT NULL,
    ids    MEDIUMBLOB      NOT NULL,
    PRIMARY KEY (server, n)
) ENGINE = InnoDB ROW_FORMAT = DYNAMIC;

-- One row: the clock (see db.Clock), and the floor below which no resource's version
-- may come, because the row of a resource with that version was deleted.
CREATE TABLE IF NOT EXISTS meta (
    one    TINYINT         NOT NULL,
    seen   BIGINT          NOT NULL,
    outage BIGINT          NOT NULL,
    floor  BIGINT UNSIGNED NOT NULL,
    PRIMARY KEY (one)
) ENGINE = InnoDB;

INSERT IGNORE INTO meta (one, seen, outage, floor) VALUES (1, 0, 0, 0);
