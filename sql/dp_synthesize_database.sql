-- dp_synthesize_database(schema, target, epsilon, delta | rho | mu, tables, shares, method, link_method, max_degree, max_rows, plan, fresh, undeclared)
--
-- Synthetic copies of all protected tables of a schema with their links, in a new schema with the same declared columns, types, keys
-- and constraints. It calls dp_synthesize for each table, then dp_links for its foreign keys, parents first. Tables of dp_public to which links
-- refer are copied as they are.
--
-- schema                the schema of the tables; 'spark.(attached)' are those attached from Spark
-- target                the schema to make; it may exist, without tables
-- epsilon, delta        the total of all calls together; or rho; or mu. Each table's own budget is charged its share
-- precision             is refused, in words that say why: a budget is typed here
-- tables                only these; by default all that are protected
-- shares                {'ratings': 3}: how many times its default share of the total a table gets
-- method, link_method   the method of dp_synthesize and that of dp_links
-- max_degree            as in dp_links, for tables that link two others, refer to themselves, or have parents that are rows of the unit
-- max_rows              how many rows of each unit count, where dp_protect left it to each request or allows more: 5, or {'visits': 5, 'drugs': 20}
-- plan                  true: only show what would be done, at no cost
-- fresh                 true: draw and charge again
-- undeclared            what becomes of columns that were never declared and have no default: 'drop' (the default), or 'null'
--
-- Columns: step, dataset, what, mechanism, share (of the total), cost (in the unit of the accounting), epsilon (of that cost
-- alone), rows (that were made), seconds, note (what differs from the original: columns without a declared domain are
-- named, which are left out, or NULL; and pairs of attributes that have too many cells, or were measured in groups or not at all)
-- Errors: if one table cannot be made, everything is refused before anything is charged. This includes constraints that the new
-- tables cannot have (with plan := true too), and the promises of all link tables.
-- Cost: the budget typed, once; made again after a DROP it costs nothing and gives the same tables.
--
-- Example:
--   CREATE TABLE readers (reader_id INTEGER PRIMARY KEY, age INTEGER);
--   CREATE TABLE books (book_id INTEGER PRIMARY KEY, novel BOOLEAN);
--   CREATE TABLE loans (reader_id INTEGER REFERENCES readers (reader_id), book_id INTEGER REFERENCES books (book_id), PRIMARY KEY (reader_id, book_id));
--   INSERT INTO readers SELECT i, i % 3 FROM range(90) t(i);
--   INSERT INTO books SELECT i, i % 2 = 0 FROM range(40) t(i);
--   INSERT INTO loans SELECT DISTINCT i % 90, i * 7 % 40 FROM range(400) t(i);
--   CALL dp_protect('readers', rho := 1); CALL dp_attribute('readers', 'age', low := 0, high := 2);
--   CALL dp_protect('books', rho := 1); CALL dp_attributes('books');
--   CALL dp_protect('loans', unit := 'reader_id', max_rows := 5, rho := 1);
--   CALL dp_public('books', links := 'loans');
--   CALL dp_synthesize_database('main', target := 'syn', tables := ['readers', 'books', 'loans'], rho := 1, plan := true);
--   CALL dp_synthesize_database('main', target := 'syn', tables := ['readers', 'books', 'loans'], rho := 1);
CREATE OR REPLACE MACRO dp_synthesize_database(
    schema, target := NULL, epsilon := NULL, delta := NULL, rho := NULL, mu := NULL, "precision" := NULL, tables := NULL, shares := NULL,
    method := NULL, link_method := NULL, max_degree := NULL, max_rows := NULL, plan := false, fresh := false, undeclared := NULL
) AS TABLE SELECT * FROM query(_dp_bind('dp_synthesize_database', {
    'schema': schema, 'target': target, 'epsilon': epsilon, 'delta': delta, 'rho': rho, 'mu': mu, 'precision': "precision", 'tables': tables,
    'shares': shares, 'method': method, 'link_method': link_method, 'max_degree': max_degree, 'max_rows': max_rows, 'plan': plan,
    'fresh': fresh, 'undeclared': undeclared
}));
