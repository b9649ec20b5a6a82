-- dp_queries(dataset, queries, epsilon, delta | rho | mu | precision, mechanism, max_rows, release, fresh, columns)
--
-- Noisy answers to many linear queries at once: prefixes, ranges, hierarchies, conditions, sums of two attributes. All queries
-- of a call are planned together. The gap in dp_explain says how far from optimal the plan can be.
--
-- queries               a list of entries {'attribute': kind, ...}; each asks all products of one query per attribute. A kind is
--                       'identity', 'total', 'prefix', 'suffix', 'range', 'circular', 'width-7', 'hierarchy-4', or a list
--                       of SQL conditions. {'a+b': 'affine'} asks a + b <= c, {'a+b': 'abs'} asks |a - b| <= c, both with
--                       cell positions; {'a+b': ['a < b', ...]} asks any conditions on the two. 'weight': 2 in an entry
--                       is the weight of the variance of its answers. In DuckDB each attribute has one type of kind in a list: if
--                       one entry has a name and another one conditions, write the list as JSON:
--                       '[{"age": "range"}, {"age": ["age < 25"]}]'::JSON
-- epsilon, delta        what this request spends in total (delta 0 is pure DP); or rho; or mu
-- precision             in place of a budget: the least one at which no answer has a larger standard deviation, in rows; or '5% of 1000', which is 50; "precision" in quotes
--                       before DuckDB 2.0
-- mechanism             'auto', 'querysmasher', 'hdmm', 'residual_plus', 'wff', 'residual'; for pure DP 'hdmm'
-- max_rows              how many rows of each unit count in this request, where that is not what dp_protect says
-- release, fresh        as in dp_marginals
-- columns               'short': each answer with its 95 % interval alone, n and n_ci = {'low': ..., 'high': ...}. It is the same request
--
-- Columns: query (the entry in words); a_from and a_to for each attribute a whose queries are intervals (bin edges, or labels);
-- a_predicate for conditions on a, or predicate for conditions on two; answer, stddev, ci_low, ci_high (95 %, for each answer alone)
-- Rows of the table with a value outside the domain of any attribute that an entry uses (and no 'other') are in no answer.
-- Cost: the budget typed, once per request.
--
-- Example:
--   FROM dp_queries('adult', [{'age': 'range', 'sex': 'identity'}, {'age': 'prefix'}], epsilon := 0.5);
--   FROM dp_queries('adult', {'age': ['age < 25', 'age >= 65']}, rho := 0.001);
--   FROM dp_queries('adult', '[{"age": "range"}, {"age": ["age < 25"]}]'::JSON, rho := 0.001);
CREATE OR REPLACE MACRO dp_queries(
    dataset, queries, epsilon := NULL, delta := NULL, rho := NULL, mu := NULL, "precision" := NULL, mechanism := 'auto', max_rows := NULL, release := NULL,
    fresh := false, columns := NULL
) AS TABLE SELECT * FROM query(_dp_bind('dp_queries', {
    'dataset': dataset, 'queries': queries, 'epsilon': epsilon, 'delta': delta, 'rho': rho, 'mu': mu, 'precision': "precision",
    'mechanism': mechanism, 'max_rows': max_rows, 'release': release, 'fresh': fresh, 'columns': columns
}));
