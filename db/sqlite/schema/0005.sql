-- The claims of each identity that have been made under a quota of claims. Nothing is written where there is
-- none, and nothing when a claim ends: the claim says whether it is live. Who counts deletes the rows of those
-- that are not, and so does the janitor.
CREATE TABLE identity_claims (
    identity TEXT NOT NULL,
    claim    TEXT NOT NULL,
    PRIMARY KEY (identity, claim)
) WITHOUT ROWID;
