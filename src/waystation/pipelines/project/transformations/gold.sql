-- Gold: what people ask for.  A materialized view is worked out anew in every run.
CREATE MATERIALIZED VIEW gold
COMMENT 'What each customer has ordered so far'
AS SELECT customer, count(*) AS orders, sum(amount) AS amount, max(timestamp) AS latest
FROM silver
GROUP BY customer;
