package once

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"
)

// Session is a connection to PostgreSQL with one transaction at a time. Adapters to drivers implement it.
type Session interface {
	Begin(context.Context) error
	// Query runs a statement, and scans its only row if there is one.
	Query(ctx context.Context, statement string, args []any, into ...any) (found bool, err error)
	Commit(context.Context) error
	Rollback(context.Context)  // nothing if no transaction is open
	Lost(context.Context) bool // whether the connection is gone; no transaction is open
	Close()                    // gives it back
	Tx() any                   // the driver's transaction
}

const (
	columns = "coalesce(status, 0), coalesce(headers::text, '[]'), coalesce(body, ''), coalesce(stored, ''), " +
		"coalesce(extract(epoch FROM expires), 0)::float8"
	qClaim = "SELECT outcome, coalesce(claim, ''), coalesce(extract(epoch FROM retry_after), 0)::float8, " + columns +
		" FROM once.claim($1::text, $2::text, $3::text, $4::text, $5::bytea, 'transactional', make_interval(secs => $6::float8), " +
		"make_interval(secs => $7::float8), $8::boolean, $9::text::uuid)"
	qRenew      = "SELECT once.renew($1::text)"
	qComplete   = "SELECT once.complete($1::text, $2::integer, $3::text::jsonb, $4::bytea)"
	qRecorded   = "SELECT " + columns + " FROM once.recorded($1::text)"
	qRelease    = "SELECT once.release($1::text)"
	qEmit       = "SELECT once.emit($1::text, nullif($2::text, ''), $3::text, $4::bytea, $5::text::jsonb, nullif($6::text, ''))::text"
	qAccept     = "SELECT once.accept($1::text, $2::text)"
	qLock       = "SELECT once.lock($1::text)"
	qDerive     = "SELECT once.derive($1::text, $2::text)"
	qCheckpoint = "SELECT once.checkpoint($1::text, $2::text, $3::text::jsonb)"
	qResume     = "SELECT name, coalesce(state::text, 'null') FROM once.resume($1::text)"
)

// Bound is what any transaction may call, with a request or without one.
type Bound struct {
	session Session
	claim   string
}

// Bind is for a transaction without a request, such as that of a consumer.
func Bind(tx *sql.Tx) *Bound { return BindSession(&sqlSession{tx: tx}) }

// BindSession is for adapters.
func BindSession(session Session) *Bound { return &Bound{session: session} }

// Emit writes an event that `once relay` publishes if and only if the transaction commits: bytes and text as they are, everything
// else as JSON. An empty key is none. Returns the event's id.
func (b *Bound) Emit(ctx context.Context, topic, key, kind string, payload any, headers ...[2]string) (id string, err error) {
	named := map[string]string{}
	for _, pair := range headers {
		named[pair[0]] = pair[1]
	}
	bytes, err := toBytes(payload)
	text, _ := toJSON(named)
	if err == nil {
		_, err = b.session.Query(ctx, qEmit, []any{topic, key, kind, bytes, string(text), b.claim}, &id)
	}
	return id, err
}

// Accept says whether the message is new to the subscriber: if so, handle it in this transaction.
func (b *Bound) Accept(ctx context.Context, subscriber, messageID string) (isNew bool, err error) {
	_, err = b.session.Query(ctx, qAccept, []any{subscriber, messageID}, &isNew)
	return isNew, err
}

// Lock lets one transaction at a time work on an account, an order, and so on.
func (b *Bound) Lock(ctx context.Context, naturalKey string) error {
	_, err := b.session.Query(ctx, qLock, []any{naturalKey})
	return err
}

// Postgres is a Store of the sessions that it opens.
type Postgres func(context.Context) (Session, error)

func (p Postgres) open(ctx context.Context, op *Op) (mode, error) {
	session, err := p(ctx)
	op.session = session
	return &transaction{op, session}, err
}

// transaction is an attempt that claims, works and records in one transaction.
type transaction struct {
	op      *Op
	session Session
}

func (t *transaction) start(ctx context.Context) (*Response, error) {
	if err := t.session.Begin(detached{ctx}); err != nil {
		return nil, err
	}
	if t.op.attempt > 1 && t.op.claim != "" { // the reply to its COMMIT may have been lost
		var row row
		found, err := t.session.Query(ctx, qRecorded, []any{t.op.claim}, row.into()...)
		if err != nil {
			return nil, err
		} else if found {
			return row.response(false)
		}
	}
	return t.hold(ctx)
}

// hold makes sure that this request holds the key. A response: it does not.
func (t *transaction) hold(ctx context.Context) (*Response, error) {
	op, o := t.op, t.op.options
	if op.gates {
		_, err := t.session.Query(ctx, qRenew, []any{op.claim})
		return nil, err
	}
	var outcome, claim string
	var retryAfter float64
	var row row
	_, err := t.session.Query(ctx, qClaim, []any{op.scope, op.key, op.request.Method, op.target(), op.body, o.Lease.Seconds(),
		o.TTL.Seconds(), o.Wait, op.id}, append([]any{&outcome, &claim, &retryAfter}, row.into()...)...)
	if err != nil {
		return nil, err
	}
	if outcome == "run" || outcome == "mine" {
		op.claim = claim
		return nil, nil
	}
	op.outcome = outcome
	if outcome == "replay" {
		return row.response(true)
	}
	return refusal(outcome, time.Duration(retryAfter*float64(time.Second))), nil
}

// refusal is the answer to mismatch, unknown and busy.
func refusal(outcome string, retryAfter time.Duration) *Response {
	switch outcome {
	case "mismatch":
		return problem("key-reused", "", 0)
	case "unknown":
		return problem("outcome-unknown", "", 0)
	}
	if retryAfter < time.Second {
		retryAfter = time.Second
	}
	return problem("in-flight", "", retryAfter)
}

func (t *transaction) finish(ctx context.Context, r *Response) (*Response, error) {
	if !r.final() || errors.Is(t.op.err, ErrNothingDone) {
		t.release(ctx)
		if r.early() {
			return r, nil
		}
		return t.op.told(r, "retry"), nil
	}
	if t.op.err == nil {
		err := t.complete(ctx, r)
		if err == nil {
			return t.op.recorded(r), nil
		} else if sqlState(err) != "25P02" {
			return nil, err
		} else if r.Status < 400 {
			return nil, fmt.Errorf("the handler answered %d although a statement had failed; return its error", r.Status)
		}
	}
	t.session.Rollback(ctx) // what the handler did is undone; its refusal is recorded
	if err := t.session.Begin(ctx); err != nil {
		return nil, err
	}
	if refused, err := t.hold(ctx); refused != nil || err != nil {
		return refused, err
	}
	if err := t.complete(ctx, r); err != nil {
		return nil, err
	}
	return t.op.recorded(r), nil
}

func (t *transaction) complete(ctx context.Context, r *Response) error {
	headers, err := toJSON(r.recorded())
	if err == nil {
		_, err = t.session.Query(ctx, qComplete, []any{t.op.claim, r.Status, string(headers), notNil(r.Body)})
	}
	if err == nil {
		err = t.session.Commit(ctx)
	}
	return err
}

func notNil(body []byte) []byte {
	if body == nil {
		return []byte{}
	}
	return body
}

// release rolls back. If checkpoints have committed the claim, the next request need not wait for its lease.
func (t *transaction) release(ctx context.Context) {
	t.session.Rollback(ctx)
	if t.op.hasSteps && !t.op.gates && t.session.Begin(ctx) == nil {
		if _, err := t.session.Query(ctx, qRelease, []any{t.op.claim}); err == nil {
			t.session.Commit(ctx)
		}
	}
}

func (t *transaction) derive(ctx context.Context, step string) (key string, err error) {
	_, err = t.session.Query(ctx, qDerive, []any{t.op.claim, step}, &key)
	return key, err
}

// handlerContext: a client that hangs up ends the work, and the transaction undoes it.
func (t *transaction) handlerContext(ctx context.Context) context.Context { return ctx }

func (t *transaction) repeatable(ctx context.Context, err error) bool {
	t.session.Rollback(ctx) // what failed has no effect; and Lost needs the connection
	switch state := sqlState(err); {
	case state == "":
		return t.session.Lost(ctx)
	case state == "40001", state == "40P01", state == "ON002": // ON002: it is recorded, and the next attempt finds that
		return true
	default: // the connection, or the server
		return strings.HasPrefix(state, "08") || strings.HasPrefix(state, "57P")
	}
}

// isUnavailable: overtaken. The gate answers with what the record says.
func (t *transaction) isUnavailable(err error) bool { return t.overtaken(err) }

func (t *transaction) overtaken(err error) bool { return sqlState(err) == "ON001" }

func (t *transaction) close(ctx context.Context) {
	t.session.Rollback(ctx)
	t.session.Close()
}

func sqlState(err error) string {
	var known interface{ SQLState() string }
	if errors.As(err, &known) {
		return known.SQLState()
	}
	return ""
}

// row is a recorded response.
type row struct {
	status          int
	headers, stored string
	body            []byte
	expires         float64 // seconds since 1970
}

func (r *row) into() []any { return []any{&r.status, &r.headers, &r.body, &r.stored, &r.expires} }

func (r *row) response(isReplay bool) (*Response, error) {
	var pairs [][2]string
	if err := json.Unmarshal([]byte(r.headers), &pairs); err != nil {
		return nil, err
	}
	switch r.stored {
	case "plain":
	case "omitted", "erased":
		pairs = append(pairs, [2]string{"Once-Body", r.stored})
	default:
		return problem("store-unavailable", "the response is stored in a form that only a gateway reads: "+r.stored, 0), nil
	}
	if isReplay {
		pairs = append(pairs, replayed)
	}
	if r.expires > 0 {
		pairs = append(pairs, expires(time.Unix(int64(r.expires), 0)))
	}
	return newResponse(r.status, pairs, r.body), nil
}

// SQL keeps the records in the schema `once` of db, a PostgreSQL: lib/pq, or pgx by its stdlib.
func SQL(db *sql.DB) Store {
	return Postgres(func(ctx context.Context) (Session, error) {
		conn, err := db.Conn(ctx)
		return &sqlSession{conn: conn}, err
	})
}

type sqlSession struct {
	conn *sql.Conn
	tx   *sql.Tx
}

func (s *sqlSession) Begin(ctx context.Context) (err error) {
	s.tx, err = s.conn.BeginTx(ctx, nil)
	return err
}

func (s *sqlSession) Query(ctx context.Context, statement string, args []any, into ...any) (bool, error) {
	if s.tx == nil {
		return false, sql.ErrTxDone
	}
	rows, err := s.tx.QueryContext(ctx, statement, args...)
	if errors.Is(err, sql.ErrTxDone) {
		return false, fmt.Errorf("the handler has ended its transaction, which is for once.Idempotent to do: %w", err)
	} else if err != nil {
		return false, err
	}
	defer rows.Close()
	found := rows.Next()
	if found && len(into) > 0 {
		err = rows.Scan(into...)
	}
	if err == nil {
		err = rows.Err()
	}
	return found, err
}

func (s *sqlSession) Commit(context.Context) error {
	tx := s.tx
	s.tx = nil
	return tx.Commit()
}

func (s *sqlSession) Rollback(context.Context) {
	if s.tx != nil {
		s.tx.Rollback()
		s.tx = nil
	}
}

func (s *sqlSession) Lost(ctx context.Context) bool { return s.conn.PingContext(ctx) != nil }
func (s *sqlSession) Close()                        { s.conn.Close() }
func (s *sqlSession) Tx() any                       { return s.tx }
