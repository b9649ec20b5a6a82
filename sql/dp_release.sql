-- dp_release(name, bounds)
--
-- The rows of a stored release, by the name it was given or by its number in dp_releases().
--
-- Columns: those of the function that made it
-- Cost: nothing.
--
-- Example:
--   FROM dp_release('overview');
CREATE OR REPLACE MACRO dp_release(name, bounds := false) AS TABLE
SELECT * FROM query(_dp_bind('dp_release', {'name': name, 'bounds': bounds}));
