-- dp_protect(dataset, epsilon, delta | rho | mu, unit, max_rows, accounting, another)
--
-- Declare a table or view private, once and for all, with the budget that all its releases share.
--
-- dataset               'table', 'schema.table' or 'catalog.schema.table'; a join is protected as a view. A view that groups,
--                       numbers or samples several people's rows is refused, unless it groups by the column that is its unit
-- epsilon, delta        the whole budget; delta 0 is pure DP; or rho; or mu (delta beside those only says where to show
--                       epsilon)
-- unit, max_rows        the column that names who is protected, and how many rows of each are kept; further rows are
--                       left out in a keyed hash order; without a unit every row is one person. Of a link table
--                       unit := ['user_id', 'movie_id'] protects both, and max_rows is a promise for both (see dp_links);
--                       unit := [['country', 'number']] is one unit named by two columns
-- accounting            'gdp' (default for epsilon and mu; best for Gaussian noise), 'zcdp' (default for rho; best for Laplace
--                       noise and many selections) or 'pure' (default for delta 0); for good: docs/privacy.md, Accounting
-- another               true: its rows are other people's than those of a protected table that cannot be seen now. Without it,
--                       what may be such a table under another name is refused, because it would get a second budget
--
-- Columns: dataset, neighbours, accounting, budget (mu^2, rho or epsilon), epsilon, delta, note (what the declaration may
-- not protect, and what to write instead)
-- Cost: nothing. The same declaration again changes nothing; another one is refused.
--
-- Example:
--   CALL dp_protect('adult', epsilon := 3, delta := 1e-9);
CREATE OR REPLACE MACRO dp_protect(
    dataset, epsilon := NULL, delta := NULL, rho := NULL, mu := NULL, unit := NULL, max_rows := NULL, accounting := NULL,
    another := NULL
) AS TABLE SELECT * FROM query(_dp_bind('dp_protect', {
    'dataset': dataset, 'epsilon': epsilon, 'delta': delta, 'rho': rho, 'mu': mu, 'unit': unit, 'max_rows': max_rows,
    'accounting': accounting, 'another': another
}));
