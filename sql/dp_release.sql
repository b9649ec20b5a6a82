-- dp_release(name, postprocess, reconstruct, bounds, quantiles, columns)
--
-- The rows of a stored release, by its name or by its number in dp_releases().
--
-- postprocess, reconstruct, bounds   as in dp_marginals, for releases of marginals
-- quantiles                          as in dp_quantiles, for its releases; by default the quartiles
-- columns                            'short', as in dp_marginals, for releases of it, of dp_queries and of dp_sql
--
-- A dp_running whose horizon is not over is not stored yet: the same call of dp_running shows its totals so far.
--
-- Columns: those of the function that made the release
-- Cost: nothing.
--
-- Example:
--   FROM dp_release('overview');
CREATE OR REPLACE MACRO dp_release(name, postprocess := NULL, reconstruct := NULL, bounds := false, quantiles := NULL, columns := NULL) AS TABLE
SELECT * FROM query(_dp_bind('dp_release', {
    'name': name, 'postprocess': postprocess, 'reconstruct': reconstruct, 'bounds': bounds, 'quantiles': quantiles, 'columns': columns
}));
