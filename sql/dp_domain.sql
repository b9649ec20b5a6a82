-- dp_domain(dataset)
--
-- The declared domain: every cell of every attribute, in the order of the answers.
--
-- Columns: attribute, position, label (NULL for the NULL cell), low, high (bin edges as text)
-- Cost: nothing.
--
-- Example:
--   FROM dp_domain('adult') WHERE attribute = 'age';
CREATE OR REPLACE MACRO dp_domain(dataset) AS TABLE
SELECT * FROM query(_dp_bind('dp_domain', {'dataset': dataset}));
