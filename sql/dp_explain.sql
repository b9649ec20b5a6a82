-- dp_explain(dataset, attributes, epsilon, delta | rho | mu | target_stddev, mechanism, objective, weights)
--
-- What dp_marginals would cost and how good it would be, before anything is spent. Or the inverse: with target_stddev,
-- the budget at which no cell of any marginal has a larger standard deviation.
--
-- Columns: marginal, cells, stddev, half_width (of a 95 % interval), budget_share (sums to 1), and the same on every
-- row: mechanism, rho, mu, epsilon (at delta, all of the request), delta, ratio_to_gaussian (RMSE against independent
-- noise on each marginal at the same cost; NULL for other queries), gap (how far from optimal the plan can be)
-- Cost: nothing, and no data are read.
--
-- Example:
--   FROM dp_explain('adult', 'all 2-way', epsilon := 1.0);
--   SELECT DISTINCT epsilon, delta FROM dp_explain('adult', ['age', 'sex'], target_stddev := 50);
CREATE OR REPLACE MACRO dp_explain(
    dataset, attributes, epsilon := NULL, delta := NULL, rho := NULL, mu := NULL, target_stddev := NULL,
    mechanism := 'auto', objective := 'total', weights := NULL
) AS TABLE SELECT * FROM query(_dp_bind('dp_explain', {
    'dataset': dataset, 'attributes': attributes, 'epsilon': epsilon, 'delta': delta, 'rho': rho, 'mu': mu,
    'target_stddev': target_stddev, 'mechanism': mechanism, 'objective': objective, 'weights': weights
}));
