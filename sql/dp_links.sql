-- dp_links(dataset, synthetic, epsilon, delta | rho | mu, rows, max_degree, protect, method, rounds, release, fresh)
--
-- Synthetic links between the rows of synthetic tables, such as which users rated which movies. Every link refers to existing rows.
--
-- synthetic             {'users': 'users_syn', 'movies': 'movies_syn'}: a synthetic table for each of two parents; for a table
--                       whose rows have one parent each, the table itself and its parent: {'children': ..., 'parents': ...};
--                       for a table that refers to itself, only itself: {'staff': 'staff_syn'}. These tables hold rows of
--                       dp_synthesize or dp_links as they were made, or are declared by dp_public
-- epsilon, delta        what this request spends of the budget of the link table; or rho; or mu
-- precision             is refused, in words that say why: a budget is typed here
-- rows                  how many links; by default about as many as there are
-- max_degree            how many links of each protected row are counted, and the most that a synthetic row gets; by default
--                       max_rows of the table. If it is larger, the noise, and the neighbours in dp_ledger(), are those of so many
--                       links. For a table that refers to itself: how many rows may refer to one row, by default 10
-- protect               a parent, or 'both': must be the unit that dp_protect has declared
-- method                'auto'; or 'paper', 'sliced': the published method, for comparison
-- rounds                of 'paper' and 'sliced'
-- release, fresh        as in dp_marginals
--
-- Columns: the key of the link table if it has one of its own, the foreign keys, and the declared attributes of the link
-- table; for a table whose rows have one parent each, the columns of its synthetic table and the foreign key
-- Rows: links are stored as positions in the synthetic tables. If these have changed since, reading the links is an error, and
-- fresh := true draws new links
-- Cost: the budget typed, once per request, of the link table. The parents are charged nothing.
--
-- Example:
--   CREATE TABLE users (user_id INTEGER PRIMARY KEY, age INTEGER); INSERT INTO users SELECT i, i % 3 FROM range(90) t(i);
--   CREATE TABLE movies AS SELECT i AS movie_id, i % 2 = 0 AS comedy FROM range(40) t(i);
--   CREATE TABLE ratings AS SELECT i % 90 AS user_id, i * 7 % 40 AS movie_id FROM range(400) t(i);
--   CALL dp_protect('users', rho := 1); CALL dp_attribute('users', 'age', low := 0, high := 2);
--   CALL dp_protect('movies', rho := 1); CALL dp_attributes('movies');
--   CALL dp_protect('ratings', unit := 'user_id', max_rows := 5, rho := 1);
--   CALL dp_link('ratings', "references" := {'user_id': 'users.user_id', 'movie_id': 'movies.movie_id'});
--   CALL dp_public('movies', links := 'ratings');
--   CREATE TABLE users_syn AS FROM dp_synthesize('users', rho := 0.5);
--   CREATE TABLE movies_syn AS FROM dp_synthesize('movies', rho := 0.5);
--   CREATE TABLE ratings_syn AS FROM dp_links('ratings', synthetic := {'users': 'users_syn', 'movies': 'movies_syn'}, rho := 0.5);
CREATE OR REPLACE MACRO dp_links(
    dataset, synthetic := NULL, epsilon := NULL, delta := NULL, rho := NULL, mu := NULL, "precision" := NULL, "rows" := NULL,
    max_degree := NULL, protect := NULL, method := NULL, rounds := NULL, release := NULL, fresh := false
) AS TABLE SELECT * FROM query(_dp_bind('dp_links', {
    'dataset': dataset, 'synthetic': synthetic, 'epsilon': epsilon, 'delta': delta, 'rho': rho, 'mu': mu, 'precision': "precision",
    'rows': "rows", 'max_degree': max_degree, 'protect': protect, 'method': method, 'rounds': rounds, 'release': release, 'fresh': fresh
}));
