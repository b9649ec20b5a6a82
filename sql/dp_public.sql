-- dp_public(tables, links)
--
-- Declare that the rows of a table are public, so that they may stand beside private ones: a synthetic table from another
-- tool, a list of films. Nothing protects them. What dp_synthesize and dp_links have made needs no declaration.
--
-- tables                'table', 'schema.table' or 'catalog.schema.table', or a list of them; of a view all that it reads
--                       must be readable in its text, and not protected
-- links                 a protected table: the rows of the tables are public only where its links refer to them, also if
--                       the tables are protected. So dp_links may read a parent that it does not protect
--
-- Columns: table, public ('everywhere', or where)
-- Cost: nothing. A declaration stays. A table that was replaced under the same name is as public as before.
--
-- Example:
--   CREATE TABLE towns AS SELECT i AS town_id, i % 2 = 0 AS coast FROM range(20) t(i);
--   CALL dp_public('towns');
CREATE OR REPLACE MACRO dp_public(tables, links := NULL) AS TABLE
SELECT * FROM query(_dp_bind('dp_public', {'tables': tables, 'links': links}));
