-- How a session ends that has more claims than one transaction ends; 0 and '' for one that does not end.
ALTER TABLE sessions ADD COLUMN ending_active  TINYINT         NOT NULL DEFAULT 0;
ALTER TABLE sessions ADD COLUMN ending_waiting TINYINT         NOT NULL DEFAULT 0;
ALTER TABLE sessions ADD COLUMN ending_reason  VARBINARY(1024) NOT NULL DEFAULT '';
ALTER TABLE sessions ADD COLUMN ended_by       VARBINARY(1024) NOT NULL DEFAULT '';
