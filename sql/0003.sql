-- Version 3 of the schema.

SET LOCAL search_path = pg_catalog, pg_temp;

-- The reaper's schedule (docs/decisions/postgres-expiry.md). Times are milliseconds, as in once.keys.
ALTER TABLE once.sweeps
    ADD COLUMN due bigint NOT NULL DEFAULT (extract(epoch FROM clock_timestamp()) * 1000)::bigint, -- the next turn
    ADD COLUMN period bigint NOT NULL DEFAULT 1000, -- how long a pass through the table should take
    ADD COLUMN began bigint NOT NULL DEFAULT 0, -- this pass
    ADD COLUMN seen bigint NOT NULL DEFAULT 0, -- rows, in this pass
    ADD COLUMN removed bigint NOT NULL DEFAULT 0, -- rows, in this pass
    ADD COLUMN late bigint NOT NULL DEFAULT 0, -- the longest that a row had been expired, in this pass
    ADD COLUMN last_late bigint NOT NULL DEFAULT 0; -- in the pass before

-- As many rows come and go as in once.keys.
ALTER TABLE once.inbox SET (
    autovacuum_vacuum_scale_factor = 0.05,
    autovacuum_vacuum_insert_scale_factor = 0.2,
    autovacuum_analyze_scale_factor = 0.1,
    autovacuum_vacuum_cost_delay = 0
);
