-- dp_check(dataset)
--
-- NOT PRIVATE, for the curator only: how many rows lie outside the declared domain of each attribute, and how many no unit has as
-- a column that names or leads to the unit is NULL, exactly.
--
-- Columns: attribute, rows, outside, nulls, outside_goes_to, nulls_go_to, note
-- Cost: nothing is charged, because the result is not private: do not publish it.
--
-- Example:
--   CALL dp_check('adult');
CREATE OR REPLACE MACRO dp_check(dataset) AS TABLE
SELECT * FROM query(_dp_bind('dp_check', {'dataset': dataset}));
