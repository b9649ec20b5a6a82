-- dp_running(dataset, attributes, start, time_column, every, horizon, epsilon, delta | rho | mu | precision, release, fresh)
--
-- Running totals that go on: how many rows there have been since a first day, by group, with one total more for each day, week, month
-- or hour that is over. All steps up to the horizon are charged together, once; the same call on a later day adds the new ones for
-- nothing, and those before stay as they were.
--
-- attributes            declared attributes to group by, as ['region']; [] for the whole table
-- start                 where the first step begins: a date, such as DATE '2026-01-01', or a timestamp
-- time_column           the column of the rows' dates or timestamps; by default the only one that the table has. It needs no declaration
-- every                 'day' (the default), 'week', 'month', or of timestamps 'hour'
-- horizon               how many steps there will be: 365 by default, at most 3,660. More cost little: the noise grows as a logarithm
-- epsilon, delta        what all steps together spend; or rho; or mu. Not for pure DP
-- precision             in place of a budget: the least one at which no total has a larger
--                       standard deviation than this number, or than '5% of 1000'; "precision" in quotes
--                       before DuckDB 2.0
-- release, fresh        as in dp_marginals
--
-- Columns: the attributes, the time column (where the step begins), total (of all rows from start to the end of the step), stddev, ci_low,
-- ci_high (95 %, for each total alone)
-- Rows: one for each group and step that is over, by the clock of this computer and of UTC; none before the first is. Rows of the table
-- before start, and with a value outside the domain of a group, are left out. Of a unit the first max_rows rows by time count.
-- What comes late counts in later totals alone. Rows of steps that are over are to stay in the table as they are: the guarantee is for
-- tables that grow, and each unit is protected once for all of the horizon.
-- Cost: the budget typed, once for all steps.
--
-- Example:
--   CREATE OR REPLACE TABLE calls AS SELECT i AS call_id, ['north', 'south'][1 + i % 2] AS region, DATE '2025-01-01' + i::INTEGER % 60 AS day FROM range(6000) t(i);
--   CALL dp_protect('calls', epsilon := 2, delta := 1e-9, another := true);
--   CALL dp_attribute('calls', 'region', "values" := ['north', 'south']);
--   FROM dp_running('calls', ['region'], start := DATE '2025-01-01', horizon := 60, epsilon := 1);
CREATE OR REPLACE MACRO dp_running(
    dataset, attributes, start := NULL, time_column := NULL, every := 'day', horizon := 365, epsilon := NULL, delta := NULL,
    rho := NULL, mu := NULL, "precision" := NULL, release := NULL, fresh := false
) AS TABLE SELECT * FROM query(_dp_bind('dp_running', {
    'dataset': dataset, 'attributes': attributes, 'start': start, 'time_column': time_column, 'every': every, 'horizon': horizon,
    'epsilon': epsilon, 'delta': delta, 'rho': rho, 'mu': mu, 'precision': "precision", 'release': release, 'fresh': fresh
}));
