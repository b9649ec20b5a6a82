-- dp_sql(sql, epsilon, delta | rho | mu, mechanism, release, fresh)
--
-- Noisy answers to SELECT count, sum, avg, stddev or median FROM one protected table, with WHERE and GROUP BY. All SELECTs of a
-- list are charged once, together. There are two routes:
-- 'planned': counts of declared columns alone, whose conditions the declared cells decide. They go to the planners of dp_marginals.
-- 'direct': everything else. Sums are taken over the rows themselves, clamped to bounds; quantiles are found in public cells.
--
-- sql                   SELECT ... FROM table WHERE ... GROUP BY ... HAVING ... ORDER BY ... LIMIT n, or a list of them.
--                       Aggregates: count(*), count(x), sum, avg, variance, var_pop, stddev, stddev_pop, count_if, count(DISTINCT
--                       unit), count(DISTINCT x), median, quantile_cont(x, 0.9), quantile_disc, percentile_cont(0.9) WITHIN GROUP (ORDER BY x), each
--                       with FILTER (WHERE ...), and expressions of them, such as 100 * sum(a) / sum(b).
--                       What is summed, and WHERE: expressions of the columns of a row, declared or not: arithmetic, comparisons,
--                       CASE, casts, LIKE, functions of numbers, texts and dates. One that fails in a row is NULL there.
--                       The bounds of a sum follow from the declared ones of its columns; a larger value is clamped. For
--                       others a condition says them, avg(price) ... WHERE price BETWEEN 0 AND 500, or 3/10 of what
--                       the sum may cost chooses them; clipped_at = [low, high] says which. A quantile needs no bounds, and is
--                       sharper with them.
--                       GROUP BY: declared columns, and expressions of those that are declared by values, or by low and high with
--                       one value in a cell: year(day), age // 10; also CUBE, ROLLUP and GROUPING SETS
-- epsilon, delta        what this request spends in total; or rho; or mu
-- mechanism             'auto': planned where that is possible, else direct; 'direct'; or a planner's name as in dp_queries: then
--                       sums and averages are answered from cells too, and those of bins from the middles of the bins
-- release, fresh        as in dp_queries
--
-- Columns: those of the SELECT (count is named 'count' unless it has an alias), then stddev, ci_low, ci_high; with several
-- aggregates each is followed by its own, such as n_stddev, n_ci_low, n_ci_high, and clipped_at where bounds were chosen. A list of SELECTs adds query, the number of the
-- SELECT, and combines the columns like UNION ALL BY NAME. The error of an expression that is not linear, such as avg, is one to
-- first order; where the noisy count is not clearly above 0, an average or a quantile is NULL. Intervals cover the noise. They do not cover
-- what clamping, or rows of a unit beyond its max_rows, take away: count(DISTINCT x) counts the values in the rows that are left
-- Rows: every group of the declared domain, also the empty ones, but for those that a condition on one grouped column excludes, as
-- far as the declared cells decide it. A
-- row of the table whose grouped column lies outside its domain (and no 'other') is in no group. Planned, it is in no answer if
-- a column that any of the SELECTs uses lies outside. NaN counts as NULL.
-- Errors: an aggregate that one row can change without a bound, such as max, names what to ask instead; so do joins and windows.
-- Cost: the budget typed, once per request. Direct, each sum takes an equal share of it, and all quantiles of one value take one.
--
-- Example:
--   FROM dp_sql('SELECT sex, count(*) FROM adult WHERE age BETWEEN 25 AND 44 GROUP BY sex', epsilon := 0.5);
--   FROM dp_sql('SELECT sex, count(*) AS n, avg(age) AS mean_age FROM adult GROUP BY sex', epsilon := 0.5);
--   FROM dp_sql('SELECT sex, avg(CASE WHEN hours_per_week > 40 THEN 100 ELSE 0 END) AS long_weeks FROM adult WHERE occupation ILIKE ''%craft%'' GROUP BY sex HAVING count(*) > 100 ORDER BY 2 DESC', epsilon := 0.5);
--   FROM dp_sql('SELECT sex, median(hours_per_week) AS hours, quantile_disc(age, 0.9) AS old FROM adult GROUP BY sex', epsilon := 0.5);
--   FROM dp_sql(['SELECT count(*) AS n FROM adult', 'SELECT age, sex, count(*) AS n FROM adult GROUP BY CUBE (age, sex)'], rho := 0.001);
CREATE OR REPLACE MACRO dp_sql(
    sql, epsilon := NULL, delta := NULL, rho := NULL, mu := NULL, mechanism := 'auto', release := NULL, fresh := false
) AS TABLE SELECT * FROM query(_dp_bind('dp_sql', {
    'sql': sql, 'epsilon': epsilon, 'delta': delta, 'rho': rho, 'mu': mu, 'mechanism': mechanism, 'release': release,
    'fresh': fresh
}));
