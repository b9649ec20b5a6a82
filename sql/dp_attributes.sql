-- dp_attributes(dataset)
--
-- Declare what the schema itself says: ENUM and BOOLEAN columns, and whole-number columns with CHECK (x BETWEEN a AND b).
-- If such a column may be NULL, it also gets a cell for NULL, as with nulls := true in dp_attribute.
-- Every other column is listed with the declaration that it still needs. This is proposed from the column's type, because its
-- values are private.
--
-- Columns: attribute, type, cells (NULL where undeclared), declare (the statement to complete; NULL where declared; a
-- comment where the type has no domain, or where an ENUM may have been made from the data)
-- Cost: nothing.
--
-- Example:
--   CALL dp_attributes('adult');
CREATE OR REPLACE MACRO dp_attributes(dataset) AS TABLE
SELECT * FROM query(_dp_bind('dp_attributes', {'dataset': dataset}));
