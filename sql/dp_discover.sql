-- dp_discover(dataset, attribute, find, max_values, bins, declare, epsilon, delta | rho | mu | precision, max_rows, release, fresh)
--
-- What a column holds that nobody has declared: its values, as far as many units hold them, or the bounds of its numbers, dates or times,
-- or bins of about equal counts. The result carries the CALL of dp_attribute that declares what was found.
--
-- attribute             the column; it needs no declaration
-- find                  'values' (the default): the values that enough units hold. The table must have been protected with a
--                       discovery_delta: a call takes a hundredth of it, or the share that it takes of the budget if that is more.
--                       'bounds': from the first to the last of the cells 0, +-{1, 2, 5} * 10^k (of dates years, of times hours)
--                       that is clearly not empty, and the next ones that together hold clearly more than noise. 'bins': bins of about
--                       equal counts between such bounds
-- max_values            for 'values': a unit is counted for at most so many of its values, chosen by a keyed hash; 1 by default. The
--                       noise grows with its root, so more help only where units hold several values
-- bins                  for 'bins': how many at most; 16 by default
-- declare               true: also declare what was found, in place of what was declared before; for the curator only. Of values,
--                       'other' takes those that were not found; nulls := true is declared where enough units, or rows, have NULL
-- epsilon, delta        what this request spends in total; or rho; or mu. Not for pure DP
-- precision             in place of a budget: the least one at which no count of a value, and of none of the public cells by
--                       which bounds and bins are found, has a larger standard deviation than this number, or than '5% of 1000'; "precision" in quotes
--                       before DuckDB 2.0
-- max_rows              how many rows of each unit count in this request, where that is not what dp_protect says
-- release, fresh        as in dp_marginals
--
-- Columns: for 'values' value, count (of units, noisy), stddev (of its noise), threshold (which a noisy count has to exceed) and declare
-- (the CALL; where there are more than 1,000 values in the first row only); for 'bounds' and 'bins' low, high, count (of rows), stddev,
-- threshold (of the cells that the bounds were found in) and declare
-- Rows: the values that were found, or the bins, in their order; one row of bounds; none where nothing was found. NULL is no row, and in
-- declare where enough have it: of values it counts as a unit's last one, behind max_values others. NaN and infinities
-- are never found, nor are texts of more than 1,000 bytes. A value is shown because its noisy count was large: near the threshold
-- it is more likely too large than too small. Few rows beyond the bounds stay unseen. declare is NULL where no declaration holds
-- what was found, such as decimals of more digits than a DOUBLE has; nothing is declared then.
-- Cost: the budget typed, once per request; for 'values' also its part of discovery_delta.
--
-- Example:
--   CREATE OR REPLACE TABLE stays AS SELECT i % 900 AS patient_id, ['flu', 'cold', 'asthma'][1 + i % 3] AS diagnosis, 0.1 * i AS charge FROM range(4000) t(i);
--   CALL dp_protect('stays', unit := 'patient_id', max_rows := 5, epsilon := 3, delta := 1e-9, discovery_delta := 1e-10, another := true);
--   FROM dp_discover('stays', 'diagnosis', max_values := 3, epsilon := 1);
--   FROM dp_discover('stays', 'charge', find := 'bounds', epsilon := 0.5);
--   FROM dp_discover('stays', 'charge', find := 'bins', bins := 4, declare := true, epsilon := 1);
CREATE OR REPLACE MACRO dp_discover(
    dataset, attribute, find := 'values', max_values := NULL, bins := NULL, declare := false, epsilon := NULL,
    delta := NULL, rho := NULL, mu := NULL, "precision" := NULL, max_rows := NULL, release := NULL, fresh := false
) AS TABLE SELECT * FROM query(_dp_bind('dp_discover', {
    'dataset': dataset, 'attribute': attribute, 'find': find, 'max_values': max_values, 'bins': bins,
    'declare': declare, 'epsilon': epsilon, 'delta': delta, 'rho': rho, 'mu': mu, 'precision': "precision", 'max_rows': max_rows, 'release': release, 'fresh': fresh
}));
