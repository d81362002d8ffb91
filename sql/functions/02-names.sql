-- Names for the numbers in tables and answers: those of include/once/ (once.h, policy.h) and lib/core/ (record.h, rules.h).
--
-- once._state_completed() costs nothing where it is executed: the planner replaces it by its number. One function for each name,
-- because a session pays for replacing them in its plans: the shorter the function, the less.

SET LOCAL search_path = pg_catalog, pg_temp;

-- the newest version of the record that these functions read, and the one that they write
CREATE OR REPLACE FUNCTION once._schema() RETURNS smallint LANGUAGE sql IMMUTABLE PARALLEL SAFE RETURN 1::smallint;

CREATE OR REPLACE FUNCTION once._state_pending() RETURNS smallint LANGUAGE sql IMMUTABLE PARALLEL SAFE RETURN 1::smallint;
CREATE OR REPLACE FUNCTION once._state_completed() RETURNS smallint LANGUAGE sql IMMUTABLE PARALLEL SAFE RETURN 2::smallint;
CREATE OR REPLACE FUNCTION once._state_failed() RETURNS smallint LANGUAGE sql IMMUTABLE PARALLEL SAFE RETURN 3::smallint;
CREATE OR REPLACE FUNCTION once._state_unknown() RETURNS smallint LANGUAGE sql IMMUTABLE PARALLEL SAFE RETURN 4::smallint;

CREATE OR REPLACE FUNCTION once._recover_retry() RETURNS smallint LANGUAGE sql IMMUTABLE PARALLEL SAFE RETURN 0::smallint;
CREATE OR REPLACE FUNCTION once._recover_transactional() RETURNS smallint LANGUAGE sql IMMUTABLE PARALLEL SAFE RETURN 1::smallint;
CREATE OR REPLACE FUNCTION once._recover_hold() RETURNS smallint LANGUAGE sql IMMUTABLE PARALLEL SAFE RETURN 2::smallint;

-- unknown because the lease ran out
CREATE OR REPLACE FUNCTION once._flag_by_lease() RETURNS smallint LANGUAGE sql IMMUTABLE PARALLEL SAFE RETURN 1::smallint;
-- an earlier epoch ended in doubt, or by its lease
CREATE OR REPLACE FUNCTION once._flag_doubted() RETURNS smallint LANGUAGE sql IMMUTABLE PARALLEL SAFE RETURN 2::smallint;
-- a release may have come after an effect
CREATE OR REPLACE FUNCTION once._flag_had_effect() RETURNS smallint LANGUAGE sql IMMUTABLE PARALLEL SAFE RETURN 4::smallint;

CREATE OR REPLACE FUNCTION once._payload_none() RETURNS smallint LANGUAGE sql IMMUTABLE PARALLEL SAFE RETURN 0::smallint;
CREATE OR REPLACE FUNCTION once._payload_response() RETURNS smallint LANGUAGE sql IMMUTABLE PARALLEL SAFE RETURN 1::smallint;
CREATE OR REPLACE FUNCTION once._payload_note() RETURNS smallint LANGUAGE sql IMMUTABLE PARALLEL SAFE RETURN 2::smallint;
CREATE OR REPLACE FUNCTION once._payload_erased() RETURNS smallint LANGUAGE sql IMMUTABLE PARALLEL SAFE RETURN 3::smallint;

CREATE OR REPLACE FUNCTION once._event_complete() RETURNS smallint LANGUAGE sql IMMUTABLE PARALLEL SAFE RETURN 1::smallint;
CREATE OR REPLACE FUNCTION once._event_release() RETURNS smallint LANGUAGE sql IMMUTABLE PARALLEL SAFE RETURN 2::smallint;
CREATE OR REPLACE FUNCTION once._event_doubt() RETURNS smallint LANGUAGE sql IMMUTABLE PARALLEL SAFE RETURN 3::smallint;
CREATE OR REPLACE FUNCTION once._event_renew() RETURNS smallint LANGUAGE sql IMMUTABLE PARALLEL SAFE RETURN 4::smallint;
CREATE OR REPLACE FUNCTION once._event_settle_completed() RETURNS smallint LANGUAGE sql IMMUTABLE PARALLEL SAFE RETURN 5::smallint;
CREATE OR REPLACE FUNCTION once._event_settle_failed() RETURNS smallint LANGUAGE sql IMMUTABLE PARALLEL SAFE RETURN 6::smallint;
CREATE OR REPLACE FUNCTION once._event_purge() RETURNS smallint LANGUAGE sql IMMUTABLE PARALLEL SAFE RETURN 8::smallint;
CREATE OR REPLACE FUNCTION once._event_erase() RETURNS smallint LANGUAGE sql IMMUTABLE PARALLEL SAFE RETURN 9::smallint;

-- a record that was read
CREATE OR REPLACE FUNCTION once._outcome_none() RETURNS smallint LANGUAGE sql IMMUTABLE PARALLEL SAFE RETURN 0::smallint;
CREATE OR REPLACE FUNCTION once._outcome_run() RETURNS smallint LANGUAGE sql IMMUTABLE PARALLEL SAFE RETURN 1::smallint;
CREATE OR REPLACE FUNCTION once._outcome_replay() RETURNS smallint LANGUAGE sql IMMUTABLE PARALLEL SAFE RETURN 2::smallint;
CREATE OR REPLACE FUNCTION once._outcome_busy() RETURNS smallint LANGUAGE sql IMMUTABLE PARALLEL SAFE RETURN 3::smallint;
CREATE OR REPLACE FUNCTION once._outcome_mismatch() RETURNS smallint LANGUAGE sql IMMUTABLE PARALLEL SAFE RETURN 4::smallint;
CREATE OR REPLACE FUNCTION once._outcome_unknown() RETURNS smallint LANGUAGE sql IMMUTABLE PARALLEL SAFE RETURN 5::smallint;
CREATE OR REPLACE FUNCTION once._outcome_done() RETURNS smallint LANGUAGE sql IMMUTABLE PARALLEL SAFE RETURN 6::smallint;
CREATE OR REPLACE FUNCTION once._outcome_already() RETURNS smallint LANGUAGE sql IMMUTABLE PARALLEL SAFE RETURN 7::smallint;
CREATE OR REPLACE FUNCTION once._outcome_lost() RETURNS smallint LANGUAGE sql IMMUTABLE PARALLEL SAFE RETURN 8::smallint;
CREATE OR REPLACE FUNCTION once._outcome_refused() RETURNS smallint LANGUAGE sql IMMUTABLE PARALLEL SAFE RETURN 9::smallint;
-- a claim id again, whose lease ran out under hold
CREATE OR REPLACE FUNCTION once._outcome_mine() RETURNS smallint LANGUAGE sql IMMUTABLE PARALLEL SAFE RETURN 32::smallint;
-- the caller's secrets are not the store's
CREATE OR REPLACE FUNCTION once._outcome_other_secrets() RETURNS smallint LANGUAGE sql IMMUTABLE PARALLEL SAFE RETURN 33::smallint;
CREATE OR REPLACE FUNCTION once._outcome_other_dictionary() RETURNS smallint LANGUAGE sql IMMUTABLE PARALLEL SAFE RETURN 34::smallint;

-- The number of a name that the caller passed.
CREATE OR REPLACE FUNCTION once._recover_number(p_recover text) RETURNS smallint
LANGUAGE plpgsql IMMUTABLE SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
    CASE p_recover
    WHEN 'retry' THEN RETURN once._recover_retry();
    WHEN 'transactional' THEN RETURN once._recover_transactional();
    WHEN 'hold' THEN RETURN once._recover_hold();
    ELSE PERFORM once._fail('ON004', 'recover is retry, transactional or hold',
             'retry and transactional run the operation again when its holder disappears; hold waits for an operator.');
    END CASE;
END
$$;

CREATE OR REPLACE FUNCTION once._outcome_name(outcome smallint) RETURNS text
LANGUAGE sql IMMUTABLE PARALLEL SAFE
RETURN CASE outcome WHEN once._outcome_mine() THEN 'mine'
       ELSE (ARRAY['run', 'replay', 'busy', 'mismatch', 'unknown', 'done', 'already', 'lost', 'refused'])[outcome] END;

-- Whether an event comes from the holder of a claim, not from an operator.
CREATE OR REPLACE FUNCTION once._is_by_holder(event smallint) RETURNS boolean
LANGUAGE sql IMMUTABLE PARALLEL SAFE
RETURN event IN (once._event_complete(), once._event_release(), once._event_doubt(), once._event_renew());

-- Whether a record has been kept for as long as it had to be: it counts as none.
CREATE OR REPLACE FUNCTION once._is_expired(state smallint, expires bigint, now bigint) RETURNS boolean
LANGUAGE sql IMMUTABLE PARALLEL SAFE
RETURN state IN (once._state_completed(), once._state_failed()) AND expires <> 0 AND now >= expires;
