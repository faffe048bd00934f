-- How a session ends that has more claims than one transaction ends; 0 and '' for one that does not end.
ALTER TABLE sessions ADD COLUMN ending_active  INTEGER NOT NULL DEFAULT 0;
ALTER TABLE sessions ADD COLUMN ending_waiting INTEGER NOT NULL DEFAULT 0;
ALTER TABLE sessions ADD COLUMN ending_reason  TEXT    NOT NULL DEFAULT '';
ALTER TABLE sessions ADD COLUMN ended_by       TEXT    NOT NULL DEFAULT '';
