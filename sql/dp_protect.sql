-- dp_protect(dataset, epsilon, delta | rho | mu, unit, max_rows, accounting, discovery_delta, another)
--
-- Declare a table or view private, for good, with the budget that all its releases share; or several tables that hold the rows
-- of the same people, with one budget for all of them.
--
-- dataset               'table', 'schema.table' or 'catalog.schema.table', or a list of tables that refer to one another, such as
--                       ['patients', 'visits', 'drugs']; a view that groups, numbers or samples rows of several people is
--                       refused, unless it groups by the column of its unit
-- epsilon, delta        the whole budget; delta 0 is pure DP; or rho; or mu (with these, delta only says at which delta to show
--                       epsilon)
-- unit, max_rows        the column that says who is protected, and how many rows of each unit are counted; further rows are
--                       left out in the order of a keyed hash; 'auto': each request of dp_sql chooses privately how much of a unit
--                       counts (see there), and other functions need a number; without a unit every row is one person.
--                       Of several tables: unit := 'patients.patient_id' is one patient with all rows that refer to it, by FOREIGN
--                       KEYs or as dp_link declared before, over any number of tables; unit := 'user_id' is the column of that name
--                       in each table. max_rows is {'visits': 5, 'drugs': 20}, or one number for all, or 'auto'; left out, one
--                       row of each counts in the table to whose key, the unit, others refer, and 'auto' holds for the rest;
--                       dp_view names rows with a number of their own. For a link table
--                       unit := ['user_id', 'movie_id'] protects both, and max_rows is a promise for both (see dp_links);
--                       unit := [['country', 'number']] is one unit that two columns identify
-- accounting            'gdp' (default for epsilon and mu; best for Gaussian noise), 'zcdp' (default for rho; best for Laplace
--                       noise and many selections) or 'pure' (default for delta 0); it stays: see docs/privacy.md
-- discovery_delta       a part of delta that is kept for dp_discover, which finds unknown values: without it, it finds bounds and
--                       bins only. The other releases share what it leaves of delta; with rho or mu it is added to the guarantee
-- another               true: its rows are other people's than those of a protected table that cannot be seen now. Without it,
--                       a table that may be such a table under another name is refused, because it would get a second budget
--
-- Columns: dataset (a row for each table), neighbours, accounting, budget (mu^2, rho or epsilon), epsilon, delta, note (whose its rows
-- are; what the declaration may not protect, and what to write instead)
-- Cost: nothing. The same declaration again changes nothing; a different one is refused.
--
-- Example:
--   CALL dp_protect('adult', epsilon := 3, delta := 1e-9);
--   CREATE TABLE guests (id INTEGER PRIMARY KEY, age INTEGER);
--   CREATE TABLE bookings (booking INTEGER PRIMARY KEY, guest INTEGER REFERENCES guests (id), nights INTEGER);
--   CREATE TABLE meals (booking INTEGER REFERENCES bookings (booking), price INTEGER);
--   CALL dp_protect(['guests', 'bookings', 'meals'], unit := 'guests.id', max_rows := {'bookings': 5, 'meals': 30},
--       epsilon := 3, delta := 1e-9);
--   CALL dp_attribute('meals', 'price', bins := [0, 10, 20, 50]);
--   FROM dp_marginals('meals', ['price'], epsilon := 0.5);
CREATE OR REPLACE MACRO dp_protect(
    dataset, epsilon := NULL, delta := NULL, rho := NULL, mu := NULL, unit := NULL, max_rows := NULL, accounting := NULL,
    another := NULL, discovery_delta := NULL
) AS TABLE SELECT * FROM query(_dp_bind('dp_protect', {
    'dataset': dataset, 'epsilon': epsilon, 'delta': delta, 'rho': rho, 'mu': mu, 'unit': unit, 'max_rows': max_rows,
    'accounting': accounting, 'another': another, 'discovery_delta': discovery_delta
}));
