-- dp_refuse(request, reason)
--
-- Refuse a waiting request, for good; its account may ask another.
--
-- reason                what the account reads when it asks again
--
-- Columns: request, account, epsilon, state, reason
-- Cost: nothing.
--
-- Example:
--   SELECT request, statement FROM dp_requests() WHERE state = 'waiting'; -- then CALL dp_refuse(18, 'ask a smaller epsilon')
CREATE OR REPLACE MACRO dp_refuse(request, reason := NULL) AS TABLE
SELECT * FROM query(_dp_bind('dp_refuse', {'request': request, 'reason': reason}));
