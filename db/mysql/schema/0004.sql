-- Who the callers were authenticated as, that made a claim and that ended it; '' if nobody asked.
ALTER TABLE claims ADD COLUMN identity VARBINARY(1024) NOT NULL DEFAULT '';
ALTER TABLE claims ADD COLUMN ended_by VARBINARY(1024) NOT NULL DEFAULT '';
-- Who opened a session, likewise.
ALTER TABLE sessions ADD COLUMN identity VARBINARY(1024) NOT NULL DEFAULT '';
