-- dp_explain(dataset, attributes, epsilon, delta | rho | mu | target_stddev, mechanism, objective, weights)
--
-- What a request would cost and how good it would be, before anything is spent. Or the inverse: with target_stddev, the
-- budget at which no answer has a larger standard deviation. Or a comparison: mechanism := 'all'.
--
-- attributes            what dp_marginals takes, the entries of dp_queries, or the SELECTs of dp_sql
-- epsilon, delta        the budget to try; or rho; or mu; or target_stddev
-- mechanism             as in dp_marginals; or 'all'
--
-- Columns: marginal, cells, stddev, half_width (of a 95 % interval), budget_share (sums to 1), and the same on every
-- row: mechanism, rho, mu, epsilon (at delta, all of the request), delta, ratio_to_gaussian (RMSE against independent
-- noise on each marginal at the same cost; NULL for other queries), gap (how far from optimal the plan can be, 0: it is
-- optimal), history (the epsilon that the charges so far come to under 'gdp' and under 'zcdp', and which is tighter; NULL
-- before the first one and under pure DP). Epsilons are shown to 10 digits; what is charged is exact. For an
-- adaptive mechanism the error depends on the data and is NULL. With mechanism := 'all' a row per mechanism, the best
-- first: mechanism, noise, rmse, max_stddev, ratio_to_best, gap, and in note why one does not do
-- Cost: nothing, and no data are read.
--
-- Example:
--   FROM dp_explain('adult', 'all 2-way', epsilon := 1.0);
--   FROM dp_explain('adult', 'all 2-way', epsilon := 1.0, mechanism := 'all');
--   SELECT DISTINCT epsilon, delta FROM dp_explain('adult', ['age', 'sex'], target_stddev := 50);
CREATE OR REPLACE MACRO dp_explain(
    dataset, attributes, epsilon := NULL, delta := NULL, rho := NULL, mu := NULL, target_stddev := NULL,
    mechanism := 'auto', objective := 'total', weights := NULL
) AS TABLE SELECT * FROM query(_dp_bind('dp_explain', {
    'dataset': dataset, 'attributes': attributes, 'epsilon': epsilon, 'delta': delta, 'rho': rho, 'mu': mu,
    'target_stddev': target_stddev, 'mechanism': mechanism, 'objective': objective, 'weights': weights
}));
