-- Who the callers were authenticated as, that made a claim and that ended it; '' if nobody asked.
ALTER TABLE claims ADD COLUMN identity TEXT NOT NULL DEFAULT '';
ALTER TABLE claims ADD COLUMN ended_by TEXT NOT NULL DEFAULT '';
-- Who opened a session, likewise.
ALTER TABLE sessions ADD COLUMN identity TEXT NOT NULL DEFAULT '';
