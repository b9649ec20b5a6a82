-- dp_discover(dataset, attribute, find, max_values, bins, declare, epsilon, delta | rho | mu, release, fresh)
--
-- What a column holds that nobody has declared: its values, as far as many units hold them. The result carries the CALL of dp_attribute
-- that declares what was found; from then on it is public knowledge, and counts of it are cheap. It needs no declaration.
--
-- attribute             the column; any supported type
-- find                  'values' (the default): the values that enough units hold; the table must have been protected with a
--                       discovery_delta, of which a call takes a hundredth, or the share that it takes of the budget if that is more
-- max_values            for 'values': for how many of its values, chosen by a keyed hash, a unit is counted at most; 1 by default. The
--                       noise grows with its root, so more help only where units hold several values
-- declare               true: also declare what was found, for the curator only; 'other' takes the values that were not found
-- epsilon, delta        what this request spends in total; or rho; or mu. Not for pure DP
-- release, fresh        as in dp_marginals
--
-- Columns: value, count (of units, noisy), stddev (of its noise), threshold (which a noisy count has to exceed), declare (the CALL
-- that declares all that was found; of more than 1,000 values in the first row only)
-- Rows: the values that were found, in their order. NULL, NaN, infinities and texts of more than 1,000 bytes are never found. A count is a
-- count that was above a threshold: near it, it is more likely too large than too small.
-- Cost: the budget typed, once per request, and the part of discovery_delta.
--
-- Example:
--   CREATE OR REPLACE TABLE visits AS SELECT i % 900 AS patient_id, ['flu', 'cold', 'asthma'][1 + i % 3] AS diagnosis FROM range(4000) t(i);
--   CALL dp_protect('visits', unit := 'patient_id', max_rows := 5, epsilon := 3, delta := 1e-9, discovery_delta := 1e-10, another := true);
--   FROM dp_discover('visits', 'diagnosis', max_values := 3, epsilon := 1);
--   FROM dp_discover('visits', 'diagnosis', max_values := 3, epsilon := 1, declare := true);
CREATE OR REPLACE MACRO dp_discover(
    dataset, attribute, find := 'values', max_values := NULL, bins := NULL, declare := false, epsilon := NULL,
    delta := NULL, rho := NULL, mu := NULL, release := NULL, fresh := false
) AS TABLE SELECT * FROM query(_dp_bind('dp_discover', {
    'dataset': dataset, 'attribute': attribute, 'find': find, 'max_values': max_values, 'bins': bins,
    'declare': declare, 'epsilon': epsilon, 'delta': delta, 'rho': rho, 'mu': mu, 'release': release, 'fresh': fresh
}));
