-- For lists of finished claims by their status. Claims of one status end more or less in the order
-- in which they were created, so its pages are few and warm.
CREATE INDEX claims_ended ON claims (status, created, id) WHERE status > 2;
