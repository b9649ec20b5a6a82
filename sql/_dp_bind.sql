-- _dp_bind(function, arguments): the SQL that a dp_ call stands for. Internal; it is evaluated while a statement is bound.
-- It may run for EXPLAIN and DESCRIBE, so it reads declarations and stored releases only. If a call fails, _dp_why returns
-- the reason, and DuckDB raises it as its own error, without a Python traceback. {key} says whose connection it is.
-- Settings that change what an expression means are named behind the optimizers that are disabled.
CREATE OR REPLACE MACRO _dp_bind(function, arguments) AS coalesce(
    _dp_plan('{key}', function, to_json(arguments)::VARCHAR, current_database(), current_schema(),
             current_setting('default_collation'), concat_ws(';', current_setting('disabled_optimizers'),
                 CASE WHEN current_setting('integer_division') THEN 'integer_division' END,
                 CASE WHEN NOT current_setting('ieee_floating_point_ops') THEN 'ieee_floating_point_ops' END,
                 CASE WHEN current_setting('old_implicit_casting') THEN 'old_implicit_casting' END)),
    error(_dp_why('{key}', function, to_json(arguments)::VARCHAR, current_database(), current_schema(),
                  current_setting('default_collation'), concat_ws(';', current_setting('disabled_optimizers'),
                 CASE WHEN current_setting('integer_division') THEN 'integer_division' END,
                 CASE WHEN NOT current_setting('ieee_floating_point_ops') THEN 'ieee_floating_point_ops' END,
                 CASE WHEN current_setting('old_implicit_casting') THEN 'old_implicit_casting' END)))
);
