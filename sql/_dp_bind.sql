-- _dp_bind(function, arguments): the SQL that a dp_ call stands for. Internal; it is evaluated while a statement is bound.
-- It may run for EXPLAIN and DESCRIBE, so it reads declarations and stored releases only. If a call fails, _dp_why returns
-- the reason, and DuckDB raises it as its own error, without a Python traceback. {key} says whose connection it is.
CREATE OR REPLACE MACRO _dp_bind(function, arguments) AS coalesce(
    _dp_plan('{key}', function, to_json(arguments)::VARCHAR, current_database(), current_schema(),
             current_setting('default_collation'), current_setting('disabled_optimizers')),
    error(_dp_why('{key}', function, to_json(arguments)::VARCHAR, current_database(), current_schema(),
                  current_setting('default_collation'), current_setting('disabled_optimizers')))
);
