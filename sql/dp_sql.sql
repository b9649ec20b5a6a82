-- dp_sql(sql, epsilon, delta | rho | mu, mechanism, release, fresh)
--
-- Noisy answers to SELECT count(*), sum(column) or avg(column) FROM one protected table, with WHERE and GROUP BY. Several
-- aggregates, and all SELECTs of a list, are planned together.
--
-- sql                   SELECT ... FROM table WHERE ... GROUP BY ..., or a list of them; WHERE is AND, OR, NOT over =, <, <=, >, >=,
--                       <>, BETWEEN, IN, LIKE, IS NULL of declared columns, and comparisons of sums and differences of
--                       whole-number columns; GROUP BY may have CUBE, ROLLUP and GROUPING SETS. sum and avg over bins
--                       use the middle of the values in each bin, and stddev does not include the error of that: declare
--                       columns that you sum or average in cells of one value. The columns of a count under an OR of conditions
--                       on one column each may have up to 10^8 cells together; those of other conditions that involve several
--                       columns up to 65,536
-- epsilon, delta        what this request spends in total; or rho; or mu
-- mechanism, release, fresh   as in dp_queries
--
-- Columns: those of the SELECT (count is named 'count' unless it has an alias), then stddev, ci_low, ci_high; with several
-- aggregates each is followed by its own, such as n_stddev, n_ci_low, n_ci_high. A list of SELECTs adds query, the number of the
-- SELECT, and combines the columns like UNION ALL BY NAME. The stddev of avg is an upper bound to first order; where the
-- noisy count is not clearly above 0, an average is NULL
-- Rows: every group of the declared domain that the conditions allow, also the empty ones. Rows of the table with a value outside
-- the domain of any column that one of the SELECTs uses (and no 'other') are in no answer, not even in that of count(*).
-- Errors: a condition that cuts through a bin names the bin's edges; for joins, HAVING, ORDER BY and the like the error says what
-- works instead.
-- Cost: the budget typed, once per request.
--
-- Example:
--   FROM dp_sql('SELECT sex, count(*) FROM adult WHERE age BETWEEN 25 AND 44 GROUP BY sex', epsilon := 0.5);
--   FROM dp_sql('SELECT sex, count(*) AS n, avg(age) AS mean_age FROM adult GROUP BY sex', epsilon := 0.5);
--   FROM dp_sql(['SELECT count(*) AS n FROM adult', 'SELECT age, sex, count(*) AS n FROM adult GROUP BY CUBE (age, sex)'], rho := 0.001);
CREATE OR REPLACE MACRO dp_sql(
    sql, epsilon := NULL, delta := NULL, rho := NULL, mu := NULL, mechanism := 'auto', release := NULL, fresh := false
) AS TABLE SELECT * FROM query(_dp_bind('dp_sql', {
    'sql': sql, 'epsilon': epsilon, 'delta': delta, 'rho': rho, 'mu': mu, 'mechanism': mechanism, 'release': release,
    'fresh': fresh
}));
