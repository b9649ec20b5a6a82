-- dp_attribute(dataset, attribute, "values" | bins | low, high, step, other, nulls, decimals, at_least, remove)
--
-- Declare which values a column may take. The declaration is public, so never look the values up in the data.
--
-- "values"              every value is a cell, in this order; DuckDB 1 needs the double quotes, DuckDB 2 also accepts it without
-- bins                  the edges of bins [a, b), of which the last one is closed; numbers, dates or timestamps, as text, or made by
--                       range(DATE '2010-01-01', DATE '2020-01-01', INTERVAL 1 MONTH)
-- low, high, step       whole numbers with step 1, and dates with a step of one day, are one cell each; otherwise they make bins from
--                       low to high. The step of dates and times is an INTERVAL; 'auto' makes few cells. For a DOUBLE column that
--                       holds whole numbers, declare "values" := range(0, 101): step := 1 is refused there, because it could also mean bins
-- (none of them)        ENUM and BOOLEAN columns list their own values; but if pandas, or a SELECT, made an ENUM from the data, its
--                       labels are private: list the possible values. A column that refers to a public table has its keys as values,
--                       up to 1,000, as they are now
-- other                 true: one more cell for all other values, called 'other', or '(other)' where 'other' is one of the
--                       values; without it, rows with such values are left out of the answers
-- nulls                 true: NULL is a cell of its own; without it, NULL is treated like any other value outside the domain
-- decimals              of bins of FLOAT and DOUBLE: how many decimals synthetic values have, 0 for whole numbers, 2 for prices;
--                       without it, as many as a hundredth of the narrowest bin has
-- at_least              a column of the same unit of which no row has a larger value, as the day on which a stay ends is at_least := 'began';
--                       synthetic rows keep to it, at no cost. CHECK (ended >= began) of a table says the same, and needs no word here
-- remove                true: take the declaration back, so that the column is as if it had never been declared; the column may be gone.
--                       What CALL dp_attributes('t') reads off the schema it declares anew
--
-- Columns: attribute, type, cells (NULL where the declaration was taken back)
-- Cost: nothing. Declaring again replaces the domain for later requests; earlier releases, and relations of dp_view with
-- attributes of their own, stay as they are.
--
-- Example:
--   CALL dp_attribute('adult', 'age', bins := [0, 18, 25, 35, 45, 55, 65, 120]);
--   CALL dp_attribute('adult', 'education', "values" := ['HS-grad', 'Bachelors', 'Masters'], other := true);
--   CALL dp_attribute('adult', 'hours_per_week', low := 0, high := 100, step := 20);
--   CALL dp_attribute('adult', 'hours_per_week', remove := true);
CREATE OR REPLACE MACRO dp_attribute(
    dataset, attribute, "values" := NULL, bins := NULL, low := NULL, high := NULL, step := NULL, other := NULL,
    nulls := NULL, decimals := NULL, at_least := NULL, remove := NULL
) AS TABLE SELECT * FROM query(_dp_bind('dp_attribute', {
    'dataset': dataset, 'attribute': attribute, 'values': "values", 'bins': bins, 'low': low, 'high': high,
    'step': step, 'other': other, 'nulls': nulls, 'decimals': decimals, 'at_least': at_least,
    'remove': remove
}));
