-- dp_attributes(dataset)
--
-- Declare what the schema itself says: ENUM and BOOLEAN columns, and whole-number columns with CHECK (x BETWEEN a AND b).
-- Where such a column may be NULL it gets a cell for NULL by itself (nulls := true); dp_attribute without it leaves that out.
-- Lists every other column with the declaration it still needs: proposed from its type, since its values are private.
--
-- Columns: attribute, type, cells (NULL where undeclared), declare (the statement to complete, NULL where declared, a
-- comment where the type has no domain, or where its labels may have been read off the data)
-- Cost: nothing.
--
-- Example:
--   CALL dp_attributes('adult');
CREATE OR REPLACE MACRO dp_attributes(dataset) AS TABLE
SELECT * FROM query(_dp_bind('dp_attributes', {'dataset': dataset}));
