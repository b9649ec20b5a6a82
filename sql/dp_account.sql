-- dp_account(account, role)
--
-- Make an account of the gateway, or give one that there is a new role and a new token: then its earlier token is void.
--
-- account               a name of letters, digits, '_', '.', '@' and '-', which is kept in small letters; one that is another
--                       account's but for case, or spaces at its ends, is refused: an account is changed by exactly its name
-- role                  'analyst' asks within its grants; 'viewer' reads what was shared with it; 'steward' grants and approves;
--                       'closed' cannot sign in
--
-- Columns: account, role, token (shown this once: the ledger keeps its hash alone)
-- Cost: nothing.
--
-- Example:
--   CALL dp_account('alice', role := 'analyst');
CREATE OR REPLACE MACRO dp_account(account, role := 'analyst') AS TABLE
SELECT * FROM query(_dp_bind('dp_account', {'account': account, 'role': role}));
