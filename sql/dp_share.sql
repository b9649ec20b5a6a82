-- dp_share(release, account)
--
-- Let an account of the gateway read a stored release, at no cost to it.
--
-- release               its name or its number in dp_releases()
--
-- Columns: release, account
-- Cost: nothing.
--
-- Example:
--   CALL dp_account('vera', role := 'viewer');
--   FROM dp_marginals('adult', ['sex'], epsilon := 0.1, release := 'shared');
--   CALL dp_share('shared', 'vera');
CREATE OR REPLACE MACRO dp_share(release, account) AS TABLE
SELECT * FROM query(_dp_bind('dp_share', {'release': release, 'account': account}));
