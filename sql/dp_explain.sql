-- dp_explain(dataset, attributes, epsilon, delta | rho | mu | precision, mechanism, objective, weights, postprocess, rows, quantiles, by, max_rows, clip)
--
-- What a request would cost and how accurate it would be, before anything is spent. With precision it finds the
-- budget at which no answer has a larger standard deviation. With mechanism := 'all' it compares all mechanisms.
--
-- attributes            the attributes of dp_marginals, the entries of dp_queries, or the SELECTs of dp_sql, which may also stand alone:
--                       dp_explain('SELECT ...', epsilon := 1); or {'discover': 'diagnosis',
--                       'find': 'values', 'max_values': 3} for dp_discover, whose row has other columns: attribute, find, stddev (of a
--                       count), threshold, discovery_delta, mechanism, rho, mu, epsilon, delta; or {'synthesize': ['age', 'sex'],
--                       'method': 'mst'} for dp_synthesize ({'synthesize': 'all'}: all that are declared), whose row has the columns
--                       attributes, mechanism, rho, mu, epsilon, delta, neighbours, note; or {'synthetic': {'users':
--                       'users_syn', 'movies': 'movies_syn'}, 'max_degree': 5} for dp_links, whose row has the columns links,
--                       max_degree, mechanism, rho, mu, epsilon, delta, neighbours, note: the note says which links are not counted,
--                       and how many rows have as many as are counted where links of this request are stored, which measured it;
--                       of both it says which pairs of attributes have too many cells to be kept, and where rows or links of this
--                       request are stored, which pairs were measured in groups of values or not at all;
--                       or {'max_rows': [1, 3, 10]}, whose rows have the columns max_rows, stddev (of a count of rows at this budget),
--                       rows_left_out, error (of both), units_whole, rows_kept, note: what is left out is of the newest dp_max_rows of
--                       the table, and NULL before. 'auto' has a row in any case; a list has one type, so with it write
--                       ['1', '3', '10', 'auto']
-- epsilon, delta        the budget to try; or rho; or mu; or precision, as in the functions themselves (target_stddev is its older name)
-- mechanism             as in dp_marginals; or 'all'
-- objective, weights    as in dp_marginals
-- postprocess           as in dp_marginals: 'auto' takes another mechanism for counts that are read 'fitted'
-- rows                  with mechanism := 'all': how many rows to assume; else a noisy number of the newest release, else 10,000
-- max_rows, clip        as in dp_sql: a bound that is chosen has a row of its own, and the error of its sum is NULL
-- quantiles, by         as in dp_quantiles, whose attribute is then the second argument; stddev is that of a rank
--
-- Columns: marginal, cells, stddev, half_width (of a 95 % interval), budget_share (they add up to 1), and the same in every
-- row: mechanism, rho, mu, epsilon (at delta, of the whole request), delta, ratio_to_gaussian (RMSE divided by that of independent
-- noise on each marginal at the same cost; NULL for other queries), gap (how far from optimal the plan can be; 0 means that it
-- is optimal), history (the epsilon that all charges so far come to under 'gdp' and under 'zcdp', and which of them is smaller; NULL
-- before the first charge and under pure DP), neighbours (who is protected, with which rows), route (of dp_sql: planned or direct, why, and the standard deviations of both where both can answer; else NULL), part_of (of a sum that is no answer itself: the average or
-- other expression that it is a part of, whose error depends on the number of rows too), error_in (of a quantile 'places of the sorted
-- rows': stddev and half_width are ranks there, and how far that is in values depends on the data; else NULL). Epsilons are shown to 10 digits; the charge is exact. The error of an adaptive mechanism depends on the data,
-- so it is NULL. With mechanism := 'all' there is one row for each mechanism, the best first: mechanism, noise, rmse, max_stddev,
-- ratio_to_best, gap, and note, which says why a mechanism cannot be used, and what 'auto' takes; of quantiles the errors are those of ranks, and
-- of dp_sql there is a row for the sums over the rows, 'direct'. For marginals there is a row for each mechanism and reading, with
-- reading, expected_error (mean over the marginals of L1 / rows: of unbiased answers as it follows from the noise, else as tried on a made-up table, and NULL where all have more than 1,048,576 cells) and intervals (whether the answers have any); the note says what 'auto' takes
-- Cost: nothing, and no data are read.
--
-- Example:
--   FROM dp_explain('adult', 'all 2-way', epsilon := 1.0);
--   FROM dp_explain('adult', 'all 2-way', epsilon := 1.0, mechanism := 'all');
--   FROM dp_explain('adult', {'synthesize': 'all'}, epsilon := 1.0);
--   FROM dp_explain('adult', 'age', quantiles := [0.5], by := ['sex'], epsilon := 0.3);
--   SELECT DISTINCT epsilon, delta FROM dp_explain('adult', ['age', 'sex'], "precision" := 50);
CREATE OR REPLACE MACRO dp_explain(
    dataset, attributes, epsilon := NULL, delta := NULL, rho := NULL, mu := NULL, "precision" := NULL, target_stddev := NULL,
    mechanism := 'auto', objective := 'total', weights := NULL, postprocess := NULL, rows := NULL,
    quantiles := NULL, by := NULL, max_rows := NULL, clip := NULL
) AS TABLE SELECT * FROM query(_dp_bind('dp_explain', {
    'dataset': dataset, 'attributes': attributes, 'epsilon': epsilon, 'delta': delta, 'rho': rho, 'mu': mu, 'precision': "precision",
    'target_stddev': target_stddev, 'mechanism': mechanism, 'objective': objective, 'weights': weights, 'postprocess': postprocess,
    'rows': "rows", 'quantiles': quantiles, 'by': "by", 'max_rows': max_rows, 'clip': clip
}));
