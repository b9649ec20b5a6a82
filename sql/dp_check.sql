-- dp_check(dataset)
--
-- NOT PRIVATE, for the curator's eyes: how many rows lie outside the declared domain, exactly, for each attribute.
--
-- Columns: attribute, rows, outside, nulls, outside_goes_to, nulls_go_to, note
-- Cost: nothing is charged, because nothing is protected: do not publish the result.
--
-- Example:
--   CALL dp_check('adult');
CREATE OR REPLACE MACRO dp_check(dataset) AS TABLE
SELECT * FROM query(_dp_bind('dp_check', {'dataset': dataset}));
