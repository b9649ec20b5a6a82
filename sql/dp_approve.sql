-- dp_approve(request)
--
-- Let the account of a waiting request ask that very request, once, within its grant and the dataset's budget.
--
-- Columns: request, account, epsilon, state
-- Cost: nothing; the request pays when it is asked again.
--
-- Example:
--   SELECT request, statement FROM dp_requests() WHERE state = 'waiting'; -- then CALL dp_approve(17)
CREATE OR REPLACE MACRO dp_approve(request) AS TABLE SELECT * FROM query(_dp_bind('dp_approve', {'request': request}));
