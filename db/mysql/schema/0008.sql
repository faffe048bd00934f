-- The lease time before which nobody is granted anything, because the database was restored from a backup; 0 for none.
ALTER TABLE meta ADD COLUMN quarantine BIGINT NOT NULL DEFAULT 0;
