-- dp_attribute(dataset, attribute, "values" | bins | low, high, step, other, nulls)
--
-- Declare which values a column may take. This is public knowledge: never look it up in the data.
--
-- "values"              every value is a cell, in this order; DuckDB 1 wants the double quotes, 2 takes it without
-- bins                  edges; bins are [a, b), the last one closed; numbers, dates or timestamps, as text or as
--                       range(DATE '2010-01-01', DATE '2020-01-01', INTERVAL 1 MONTH) makes them
-- low, high, step       whole numbers with step 1, and dates with a step of one day, are cells of their own; else bins from
--                       low to high. The step of dates and times is an INTERVAL. Where a DOUBLE column holds whole numbers,
--                       declare "values" := range(0, 101): step := 1 is refused there, as it may mean bins too
-- (none of them)        ENUM and BOOLEAN columns list their own values; the labels of an ENUM that pandas, or a SELECT, made of
--                       the data are private: list what there may be
-- other                 true: one more cell for everything else, called 'other', or '(other)' where 'other' is one of the
--                       values; without it such rows are left out of the answers
-- nulls                 true: NULL is a cell of its own; without it NULL counts as everything else
--
-- Columns: attribute, type, cells
-- Cost: nothing. Declaring again replaces the domain for later requests; earlier releases stay as they are.
--
-- Example:
--   CALL dp_attribute('adult', 'age', bins := [0, 18, 25, 35, 45, 55, 65, 120]);
--   CALL dp_attribute('adult', 'education', "values" := ['HS-grad', 'Bachelors', 'Masters'], other := true);
--   CALL dp_attribute('adult', 'hours_per_week', low := 0, high := 100, step := 20);
CREATE OR REPLACE MACRO dp_attribute(
    dataset, attribute, "values" := NULL, bins := NULL, low := NULL, high := NULL, step := NULL, other := NULL,
    nulls := NULL
) AS TABLE SELECT * FROM query(_dp_bind('dp_attribute', {
    'dataset': dataset, 'attribute': attribute, 'values': "values", 'bins': bins, 'low': low, 'high': high,
    'step': step, 'other': other, 'nulls': nulls
}));
