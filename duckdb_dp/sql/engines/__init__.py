"""dp_sql over tables of other engines: rows, joins and sums as Ibis expressions, which each engine reads in its own dialect."""
