package once;

/** The functions of the schema {@code once} that a transaction calls. */
public enum Call {
    CLAIM("SELECT outcome, claim, extract(epoch FROM retry_after)::float8, " + Call.ANSWER + " FROM once.claim("
        + "?::text, ?::text, ?::text, ?::text, ?::bytea, 'transactional', make_interval(secs => ?::float8), "
        + "make_interval(secs => ?::float8), ?::boolean, ?::text::uuid)"),
    RENEW("SELECT once.renew(?::text)"),
    COMPLETE("SELECT once.complete(?::text, ?::integer, ?::text::jsonb, ?::bytea)"),
    RECORDED("SELECT " + Call.ANSWER + " FROM once.recorded(?::text)"),
    RELEASE("SELECT once.release(?::text)"),
    EMIT("SELECT once.emit(?::text, ?::text, ?::text, ?::bytea, ?::text::jsonb, ?::text)::text"),
    ACCEPT("SELECT once.accept(?::text, ?::text)"),
    DERIVE("SELECT once.derive(?::text, ?::text)"),
    CHECKPOINT("SELECT once.checkpoint(?::text, ?::text, ?::text::jsonb)"),
    RESUME("SELECT name, state::text FROM once.resume(?::text)"),
    LOCK("SELECT once.lock(?::text)");

    private static final String ANSWER = "status, headers::text, body, stored, extract(epoch FROM expires)::float8";
    final String sql;

    Call(String sql) {
        this.sql = sql;
    }
}
