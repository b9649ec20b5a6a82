-- dp_quality(dataset, table, synthetic, epsilon, delta | rho | mu, attributes, exact, each, cells, max_rows, max_degree, release, fresh)
--
-- How far synthetic rows are from the private ones: the L1 distance of the two distributions, from 0 to 2, averaged over the
-- marginals of one, two and three attributes (500 random ones of each, if there are more). For links, marginals of two and three
-- attributes are those across tables, and the degrees of protected rows are compared too. Marginals of more than 1,048,576 cells are
-- not compared, as the note says of a table; dp_synthesize measures none of them either.
--
-- table                 the synthetic table to score: rows of dp_synthesize or dp_links, or a table declared by dp_public
-- synthetic             for links: {'users': 'users_syn', 'movies': 'movies_syn'}, as in dp_links
-- epsilon, delta        what this request spends in total; or rho; or mu
-- precision             is refused, in words that say why: a budget is typed here
-- attributes            only these; by default all that are declared
-- exact                 true: without noise, for the curator only; NOT PRIVATE, and nothing is charged
-- each                  true: one row for each marginal, of the same release
-- cells                 true, with exact := true: the largest cells of the worst marginal of each kind and of a typical one
-- max_rows, max_degree  how many rows, or links, of each unit count in this request, where dp_protect left it to each
-- release, fresh        as in dp_marginals
--
-- Columns: what ('rows', 'links', 'across tables', 'degrees of ...'), attributes (in each marginal), marginals (how many),
-- error (their mean), stddev (of the noise in it), worst (the marginal with the largest score), worst_error, note; with each:
-- what, marginal, error, stddev, note; with cells: what, which ('worst', 'typical'), marginal, cell, original and synthetic
-- (shares of the rows), note
-- Cost: the budget typed, once per request. A synthetic table that has changed since must be scored with fresh := true.
--
-- Example:
--   CREATE OR REPLACE TABLE adult_syn AS FROM dp_synthesize('adult', rows := 5000, epsilon := 1.0);
--   FROM dp_quality('adult', 'adult_syn', epsilon := 0.5);
--   FROM dp_quality('adult', 'adult_syn', exact := true);
CREATE OR REPLACE MACRO dp_quality(
    dataset, table_, synthetic := NULL, epsilon := NULL, delta := NULL, rho := NULL, mu := NULL, "precision" := NULL, attributes := NULL,
    exact := false, each := false, cells := false, max_rows := NULL, max_degree := NULL, release := NULL, fresh := false
) AS TABLE SELECT * FROM query(_dp_bind('dp_quality', {
    'dataset': dataset, 'synthetic_table': table_, 'synthetic': synthetic, 'epsilon': epsilon, 'delta': delta,
    'rho': rho, 'mu': mu, 'precision': "precision", 'attributes': attributes, 'exact': exact, 'each': each, 'cells': cells,
    'max_rows': max_rows, 'max_degree': max_degree, 'release': release, 'fresh': fresh
}));
