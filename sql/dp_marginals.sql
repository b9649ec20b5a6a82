-- dp_marginals(dataset, attributes, epsilon, delta | rho | mu | precision, mechanism, objective, weights, postprocess, reconstruct, given, rounds, max_cells, max_memory, max_rows, release, fresh, bounds, columns)
--
-- Noisy counts of every cell of one or more marginals, with standard deviations and confidence intervals. A request is charged
-- once: asking the same again is free.
--
-- attributes            ['age', 'sex'], or a list of lists ([] is the total), or 'all 2-way', 'all <=3-way'
-- epsilon, delta        what this request spends in total (delta defaults to the dataset's; 0 is pure DP); or rho; or mu
-- precision             in place of a budget: the least one at which no answer has a larger standard deviation, in rows; or '5% of 1000', which is 50; "precision" in quotes
--                       before DuckDB 2.0
-- mechanism             'auto', 'residual' (optimal correlated noise, consistent answers), 'hdmm', 'gaussian' (independent
--                       noise); 'laplace' or 'hdmm' for pure DP; 'neyman' and 'aim' choose what to measure by earlier noisy
--                       answers: closer to the truth, without intervals, by far for many or large marginals at a small budget
-- objective             'total': least sum of variances; 'max': least largest variance; 'fitted' ('residual' alone): least
--                       expected L1 error of counts that are read 'fitted'
-- weights               one positive number per marginal: the weight of the variance of its cells
-- postprocess           'unbiased' (the default), 'nonnegative' or 'fitted' (the default for 'neyman' and 'aim'): at no cost
--                       closer to the truth, but biased, so stddev and the interval are NULL; a release can be read in each way.
--                       With 'fitted', mechanism 'auto' is 'neyman', and 'residual' is planned with objective 'fitted'
-- reconstruct           'pgm': biased counts fitted by Private-PGM instead; needs pip install 'duckdb-dp[pgm]'
-- given                 for 'neyman' and 'aim': names of earlier releases of this dataset to start from, at no cost
-- rounds, max_cells     for 'neyman' and 'aim': how many rounds, and the most cells of a marginal that may be measured
-- max_memory            for 'neyman' and 'aim': bytes of marginals to hold in memory; further marginals are computed when needed
-- max_rows              how many rows of each unit count in this request, where that is not what dp_protect says
-- release               a name for this release: FROM dp_release('name') reads it. The name stays with this release for good
-- fresh                 true: draw and charge again, under a new name or none; without it, the same request returns its newest
--                       release, or the one with that name. Each run of the statement is charged, also when a notebook shows a
--                       relation again, or when a view is read. So store such rows in a table
-- bounds                true: also the low and high edge of each bin, as age_low, age_high
-- columns               'short': each answer with its 95 % interval alone, n and n_ci = {'low': ..., 'high': ...}. It is the same request
--
-- Columns: marginal (only if there are several), the attributes, count, stddev, ci_low, ci_high (95 %, for each cell alone);
-- for 'neyman' and 'aim' read 'unbiased' also measured_stddev: their error depends on the data, so stddev is NULL, and this is the
-- part of the error that the noise causes
-- Rows: every cell of the declared domain, also the empty ones; an attribute that is not in the marginal is NULL. Rows of the table
-- with a value outside the domain of any attribute in use (and no 'other') are left out of all marginals of the call.
-- Cost: the budget typed, once per request.
--
-- Example:
--   FROM dp_marginals('adult', ['age', 'sex'], epsilon := 0.5);
--   FROM dp_marginals('adult', [['age', 'sex'], ['education'], []], epsilon := 0.5, release := 'overview');
--   SELECT sex, count, ci_low, ci_high FROM dp_marginals('adult', 'all 1-way', rho := 0.001) WHERE marginal = 'sex';
CREATE OR REPLACE MACRO dp_marginals(
    dataset, attributes, epsilon := NULL, delta := NULL, rho := NULL, mu := NULL, "precision" := NULL, mechanism := 'auto',
    objective := 'total', weights := NULL, postprocess := NULL, reconstruct := NULL, given := NULL,
    rounds := NULL, max_cells := NULL, max_memory := NULL, max_rows := NULL, release := NULL, fresh := false, bounds := false, columns := NULL
) AS TABLE SELECT * FROM query(_dp_bind('dp_marginals', {
    'dataset': dataset, 'attributes': attributes, 'epsilon': epsilon, 'delta': delta, 'rho': rho, 'mu': mu, 'precision': "precision",
    'mechanism': mechanism, 'objective': objective, 'weights': weights, 'postprocess': postprocess,
    'reconstruct': reconstruct, 'given': given, 'rounds': rounds, 'max_cells': max_cells, 'max_memory': max_memory,
    'max_rows': max_rows, 'release': release, 'fresh': fresh, 'bounds': bounds, 'columns': columns
}));
