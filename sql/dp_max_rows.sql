-- dp_max_rows(dataset, epsilon, delta | rho | mu | precision, release, fresh)
--
-- How many rows the units have, and so what each max_rows would keep: for units of which nobody can guess it. dp_explain then says for
-- nothing which max_rows has the least error at a budget: FROM dp_explain('visits', {'max_rows': [1, 3, 10]}, epsilon := 1).
--
-- dataset               a protected table with a unit, also one that was protected with max_rows := 'auto', or a view of dp_view
-- epsilon, delta        what this request spends in total: a tenth of a usual question is plenty; or rho; or mu
-- precision             in place of a budget: the least one at which no number of units
--                       with so many rows has a larger standard deviation than this number, or than '5% of 1000'; "precision" in quotes
--                       before DuckDB 2.0
-- release, fresh        as in dp_marginals
--
-- Columns: max_rows (a number, or 'auto'), noise (how many times that of one row), units_whole (the share of units of which no row would be
-- left out), rows_kept (the share of rows that would count), rows_left_out (how many would not), stddev (of that number: of its noise, and of where between two bounds the units lie; NULL of the largest bound, beyond which nothing was seen), note
-- Rows: 1, 2, 3, 5, 10, 20, 30, 50 ... up to about the most rows that units have, as far as the noise tells, and the note says of how many
-- units it does not; the last one is 'auto'. All rows of
-- the table count whose unit is not NULL, whatever was declared of their columns. Units are counted by their number of rows in the cells
-- between these numbers; within a cell they are taken to have its geometric middle.
-- Cost: the budget typed, once per request. Each unit is in one cell, so that the noise is that of one row, whatever max_rows is.
--
-- Example:
--   CREATE OR REPLACE TABLE logins AS SELECT (sqrt(8 * i + 1)::INTEGER - 1) // 2 % 900 AS user_id, i % 2 AS phone FROM range(4000) t(i);
--   CALL dp_protect('logins', unit := 'user_id', max_rows := 'auto', epsilon := 3, delta := 1e-9, another := true);
--   FROM dp_max_rows('logins', epsilon := 0.5);
--   FROM dp_explain('logins', {'max_rows': [1, 3, 10]}, epsilon := 1);
CREATE OR REPLACE MACRO dp_max_rows(
    dataset, epsilon := NULL, delta := NULL, rho := NULL, mu := NULL, "precision" := NULL, release := NULL, fresh := false
) AS TABLE SELECT * FROM query(_dp_bind('dp_max_rows', {
    'dataset': dataset, 'epsilon': epsilon, 'delta': delta, 'rho': rho, 'mu': mu, 'precision': "precision", 'release': release, 'fresh': fresh
}));
