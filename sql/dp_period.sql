-- dp_period(dataset, time_column, every, start, unit, max_rows, epsilon, delta | rho | mu, accounting, discovery_delta, keep_in, another)
--
-- A budget for each closed period of a table that grows: each month that is over, say, becomes a table of its own, with the budget typed,
-- and is asked like any protected table. The same call later closes the periods that are over by then.
--
-- dataset               a table, which is not protected otherwise; it has no budget then, only its periods have one
-- time_column           its column of dates or timestamps that says when a row belongs; rows where it is NULL are in no period
-- every                 'day', 'week' (from Monday), 'month' (the default), 'quarter' or 'year'
-- start                 a day of the first period; by default today. An earlier one in a later call closes earlier periods too
-- unit, max_rows, epsilon, delta, rho, mu, accounting, discovery_delta, another   as in dp_protect, for each period
-- keep_in               the schema of the periods' tables, as 'archive'; by default that of the table. It must exist
--
-- Columns: period ('2026-01', of quarters '2026-q1', of weeks and days the first day), dataset (its table, such as visits_2026_01), neighbours,
-- accounting, budget, epsilon, delta, note
-- Rows: one for each closed period; then what all of them promise together so far, and what those of any one year do: a unit that has rows in
-- several periods is protected by the sum of their budgets. Attributes that are declared of the table, or of any of its periods, are those
-- of all periods. A period's table is a copy of its rows at the time when it is closed, by the clock of this computer and of UTC: what comes
-- late, or changes later, is in no period. FROM dp_late('visits') counts that for the curator.
-- Cost: nothing. The same declaration again closes what is over; a different one is refused.
--
-- Example:
--   CREATE OR REPLACE TABLE arrivals AS SELECT i % 700 AS patient, DATE '2025-01-01' + i::INTEGER % 90 AS day, i % 5 AS ward FROM range(9000) t(i);
--   CALL dp_period('arrivals', 'day', every := 'month', start := DATE '2025-01-01', unit := 'patient', max_rows := 5, epsilon := 1, delta := 1e-9, another := true);
--   CALL dp_attribute('arrivals', 'ward', low := 0, high := 4);
--   FROM dp_marginals('arrivals_2025_01', ['ward'], epsilon := 0.5);
--   FROM dp_sql('SELECT ward, count(*) FROM arrivals_2025_02 GROUP BY ward', epsilon := 0.5);
CREATE OR REPLACE MACRO dp_period(
    dataset, time_column, every := 'month', "start" := NULL, unit := NULL, max_rows := NULL, epsilon := NULL, delta := NULL,
    rho := NULL, mu := NULL, accounting := NULL, discovery_delta := NULL, keep_in := NULL, another := NULL
) AS TABLE SELECT * FROM query(_dp_bind('dp_period', {
    'dataset': dataset, 'time_column': time_column, 'every': every, 'start': "start", 'unit': unit, 'max_rows': max_rows,
    'epsilon': epsilon, 'delta': delta, 'rho': rho, 'mu': mu, 'accounting': accounting, 'discovery_delta': discovery_delta,
    'keep_in': keep_in, 'another': another
}));
