-- The claims that share, too, are found in the order of their positions: line is NULL for
-- them, and sharing for those that wait. Both are NULL for an uncontended lock, so that this
-- costs it nothing, where an index of its own would be one more that every claim is entered
-- in. The index keeps its name, for servers that have not been upgraded yet; these sort a
-- queue meanwhile. It does no harm to apply this twice.
ALTER TABLE claims DROP KEY claims_line, ADD KEY claims_line (line, sharing, position);
