-- dp_marginals(dataset, attributes, epsilon, delta | rho | mu, mechanism, objective, weights, postprocess, reconstruct, given, rounds, max_cells, max_memory, release, fresh, bounds)
--
-- Noisy counts of every cell of one or more marginals, with standard deviations and confidence intervals. A request is charged
-- once: asking the same again is free.
--
-- attributes            ['age', 'sex'], or a list of lists ([] is the total), or 'all 2-way', 'all <=3-way'
-- epsilon, delta        what this request spends in total (delta defaults to the dataset's; 0 is pure DP); or rho; or mu
-- mechanism             'auto', 'residual' (optimal correlated noise, consistent answers), 'hdmm', 'gaussian' (independent
--                       noise); 'laplace' or 'hdmm' for pure DP; 'aim' or 'pairs' select what to measure by earlier noisy
--                       answers, which is better for many or large marginals at a small budget
-- objective             'total': least sum of variances; 'max': least largest variance
-- weights               one positive number per marginal: the weight of the variance of its cells
-- postprocess           'unbiased' (the default, but for 'pairs'); 'nonnegative' or 'fitted' (the default for 'pairs'): at no cost
--                       closer to the truth, but biased, so stddev and the interval are NULL; a release can be read in each way
-- reconstruct           'pgm': biased counts fitted by Private-PGM instead; needs pip install 'duckdb-dp[pgm]'
-- given                 for 'aim' and 'pairs': names of earlier releases of this dataset to start from, at no cost
-- rounds, max_cells     for 'aim' and 'pairs': how many rounds, and the most cells of a marginal that may be measured
-- max_memory            for 'aim' and 'pairs': bytes of marginals to hold in memory; further marginals are computed when needed
-- release               a name for this release: FROM dp_release('name') reads it. The name stays with this release for good
-- fresh                 true: draw and charge again, under a new name or none; without it, the same request returns its newest
--                       release, or the one with that name. Each run of the statement is charged, also when a notebook shows a
--                       relation again, or when a view is read. So store such rows in a table
-- bounds                true: also the low and high edge of each bin, as age_low, age_high
--
-- Columns: marginal (only if there are several), the attributes, count, stddev, ci_low, ci_high (95 %, for each cell alone);
-- for 'aim' and 'pairs' also measured_stddev: their error depends on the data, so stddev is NULL, and measured_stddev is the
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
    dataset, attributes, epsilon := NULL, delta := NULL, rho := NULL, mu := NULL, mechanism := 'auto',
    objective := 'total', weights := NULL, postprocess := NULL, reconstruct := NULL, given := NULL,
    rounds := NULL, max_cells := NULL, max_memory := NULL, release := NULL, fresh := false, bounds := false
) AS TABLE SELECT * FROM query(_dp_bind('dp_marginals', {
    'dataset': dataset, 'attributes': attributes, 'epsilon': epsilon, 'delta': delta, 'rho': rho, 'mu': mu,
    'mechanism': mechanism, 'objective': objective, 'weights': weights, 'postprocess': postprocess,
    'reconstruct': reconstruct, 'given': given, 'rounds': rounds, 'max_cells': max_cells, 'max_memory': max_memory,
    'release': release, 'fresh': fresh, 'bounds': bounds
}));
