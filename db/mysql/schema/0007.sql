-- The servers that share the database, as they announce themselves every few seconds. Times are microseconds: started by the
-- server's own clock, seen by the database's.
CREATE TABLE IF NOT EXISTS members (
    name    VARBINARY(64)  NOT NULL,
    host    VARBINARY(255) NOT NULL,
    version VARBINARY(255) NOT NULL,
    started BIGINT         NOT NULL,
    seen    BIGINT         NOT NULL,
    PRIMARY KEY (name)
) ENGINE = InnoDB;
