-- dp_synthesize(dataset, rows, attributes, epsilon, delta | rho | mu, method, rounds, key, max_rows, release, fresh)
--
-- Synthetic rows of a private table, with its columns and types. They are drawn once; reading them again is free.
--
-- rows                  how many; by default about as many as there are, which is measured too
-- attributes            ['age', 'sex']: only these; by default all that are declared
-- epsilon, delta        what this request spends in total (delta defaults to the dataset's); or rho; or mu
-- precision             is refused, in words that say why: a budget is typed here
-- method                'forest' (built in): all pairs as mechanism 'neyman' of dp_marginals estimates them, or chosen pairs where
--                       there are too many cells; 'mst' or 'aim' use Private-PGM and need pip install 'duckdb-dp[pgm]'
-- rounds                of 'forest': how often it scores all pairs and measures those that are worth it, 1 to 20; by default 3
-- key                   columns that number the rows; by default the columns of the primary key that are no attributes
-- max_rows              how many rows of each unit count in this request, where that is not what dp_protect says
-- release, fresh        as in dp_marginals
--
-- Columns: the key (1, 2, ... or 'table-1', 'table-2', ...), then the attributes under their own names and types. Numbers
-- and dates are drawn inside their bins. 'other' is 'other' in VARCHAR columns and NULL elsewhere.
-- Rows of the table with a value outside the domain of any of the attributes (and no 'other') are left out.
-- Cost: the budget typed, once per request.
--
-- Example:
--   CREATE OR REPLACE TABLE adult_syn AS FROM dp_synthesize('adult', rows := 5000, epsilon := 1.0);
--   FROM dp_synthesize('adult', rows := 10, attributes := ['age', 'sex'], epsilon := 0.5, release := 'a few people');
CREATE OR REPLACE MACRO dp_synthesize(
    dataset, "rows" := NULL, attributes := NULL, epsilon := NULL, delta := NULL, rho := NULL, mu := NULL, "precision" := NULL,
    method := NULL, rounds := NULL, key := NULL, max_rows := NULL, release := NULL, fresh := false
) AS TABLE SELECT * FROM query(_dp_bind('dp_synthesize', {
    'dataset': dataset, 'rows': "rows", 'attributes': attributes, 'epsilon': epsilon, 'delta': delta, 'rho': rho,
    'mu': mu, 'precision': "precision", 'method': method, 'rounds': rounds, 'key': key, 'max_rows': max_rows, 'release': release, 'fresh': fresh
}));
