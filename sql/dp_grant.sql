-- dp_grant(account, dataset, epsilon, rho | mu, max_epsilon, synthetic, until)
--
-- Say what an account of the gateway may spend of a dataset in all, from now on; a later grant takes the place of an earlier one.
-- Grants may add up to more than the dataset's budget, which is what holds against accounts that tell each other their answers.
--
-- account               its name, in whatever case; a viewer spends nothing, so nothing is granted to it
-- epsilon               all that the account may spend, what it has spent included, at the dataset's delta; or rho; or mu
-- max_epsilon           what one request may cost without a steward's approval; what costs more waits in dp_requests()
-- synthetic             a table of synthetic rows, as dp_synthesize made them, or a public one: to explore at no cost; left out, as an
--                       earlier grant of the account says; '' for none
-- until                 the last day, such as '2027-06-30'; a day that is over ends the grant at once
--
-- Columns: account, dataset, epsilon (of the grant, at delta), epsilon_left, delta, max_epsilon, synthetic, until
-- Errors: no such account or dataset; a viewer; more than the dataset's budget; a max_epsilon above epsilon; rows that are not known to be synthetic.
-- Cost: nothing.
--
-- Example:
--   CALL dp_account('alice');
--   CALL dp_grant('alice', 'adult', epsilon := 1, max_epsilon := 0.2, until := '2099-06-30');
CREATE OR REPLACE MACRO dp_grant(
    account, dataset, epsilon := NULL, rho := NULL, mu := NULL, max_epsilon := NULL, synthetic := NULL, until := NULL
) AS TABLE SELECT * FROM query(_dp_bind('dp_grant', {
    'account': account, 'dataset': dataset, 'epsilon': epsilon, 'rho': rho, 'mu': mu, 'max_epsilon': max_epsilon,
    'synthetic': synthetic, 'until': until
}));
