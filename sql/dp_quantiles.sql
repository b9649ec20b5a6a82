-- dp_quantiles(dataset, attribute, quantiles, by, epsilon, delta | rho | mu | precision, mechanism, max_rows, release, fresh)
--
-- Medians and other quantiles of a number, a date or a time, by groups, each with an interval. All quantiles follow from one
-- release: after the first call, other quantiles of the same attribute, groups and budget cost nothing, unless they are selected.
--
-- attribute             a declared attribute whose type has an order
-- quantiles             numbers from 0 to 1: 0.5, or [0.25, 0.5, 0.75]; at most 1,000
-- by                    attributes to group by, e.g. ['sex']; without it all rows are one group
-- epsilon, delta        what this request spends in total (delta 0 is pure DP); or rho; or mu
-- precision             in place of a budget: the least one at which no rank is off by more, as a standard deviation in rows: quantiles are read off counts then; or '5% of 1000'; "precision" in quotes
--                       before DuckDB 2.0
-- max_rows              how many rows of each unit count in this request, where that is not what dp_protect says
-- mechanism             as in dp_queries; or 'select': values are selected by their ranks, which many cells do not make worse, and the
--                       intervals are wide. 'auto' selects from 500 cells on, and 50 for each quantile. Other quantiles are charged again then
-- release, fresh        as in dp_marginals. dp_release('name', quantiles := [0.9]) reads other quantiles
--
-- Columns: the attributes of by, quantile, value, ci_low, ci_high (95 %, for each quantile alone). Of a declared value or whole
-- number, value is of the column's type; inside bins it lies on a line between the edges: a DOUBLE, or a DATE, TIME or TIMESTAMP
-- Rows: every group of the declared domain, also the empty ones. Where the noisy number of rows of a group is not clearly above 0,
-- value is NULL and the interval is the whole domain. Rows of the table whose value is NULL are left out, as by SQL's median. A
-- quantile beyond what is declared is the declared end; an interval that reaches rows beyond it has no number there: NULL.
-- Cost: the budget typed, once per request.
--
-- Example:
--   FROM dp_quantiles('adult', 'age', [0.25, 0.5, 0.75], by := ['sex'], epsilon := 0.3);
--   SELECT value, ci_low, ci_high FROM dp_quantiles('adult', 'age', 0.5, rho := 0.001);
CREATE OR REPLACE MACRO dp_quantiles(
    dataset, attribute, quantiles, by := NULL, epsilon := NULL, delta := NULL, rho := NULL, mu := NULL, "precision" := NULL,
    mechanism := 'auto', max_rows := NULL, release := NULL, fresh := false
) AS TABLE SELECT * FROM query(_dp_bind('dp_quantiles', {
    'dataset': dataset, 'attribute': attribute, 'quantiles': quantiles, 'by': "by", 'epsilon': epsilon, 'delta': delta,
    'rho': rho, 'mu': mu, 'precision': "precision", 'mechanism': mechanism, 'max_rows': max_rows, 'release': release, 'fresh': fresh
}));
