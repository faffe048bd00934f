-- The identity of a live claim, behind 'a' if it is active and 'w' if it waits: quotas count these. NULL for claims
-- without an identity, and for claims that have ended.
ALTER TABLE claims
    ADD COLUMN live_of VARBINARY(1025) AS (CASE WHEN identity = '' THEN NULL
        WHEN status = 1 THEN CONCAT('w', identity) WHEN status = 2 THEN CONCAT('a', identity) END) STORED,
    ADD KEY claims_live_of (live_of);
