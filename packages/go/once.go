// Package once makes an HTTP handler take effect exactly once for each Idempotency-Key.
//
//	idempotent := once.Idempotent(once.SQL(db), once.Options{Scope: tenant})
//	http.Handle("/payments", idempotent(once.JSON(201, pay)))
//
// With PostgreSQL (SQL, pgxonce.Pool) what the handler writes and the response that it gives are one transaction. With Serve the
// records are in any store, behind `once serve`: then an operation whose outcome is not known is not run again.
package once

import (
	"bytes"
	"context"
	"crypto/rand"
	"database/sql"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log"
	mathrand "math/rand"
	"net/http"
	"runtime/debug"
	"strconv"
	"strings"
	"time"
)

// Options say how keys are handled. Only Scope is required.
type Options struct {
	Scope     func(*http.Request) string // whose key it is; a client must not be able to choose it
	Wait      bool                       // for a request with the same key that is at work, instead of 409
	Lease     time.Duration              // for which a checkpoint holds the key; 30 s
	TTL       time.Duration              // for which a response is kept; 24 hours
	Attempts  int                        // of a transaction that conflicts, or whose connection is lost; 6
	BodyLimit int64                      // of requests and of responses; 16 MiB
	Retry     bool                       // Serve only: an operation whose outcome is not known runs again
	// Attribute gets once.key, once.outcome and once.attempts of each request, for a span of OpenTelemetry:
	// trace.SpanFromContext(ctx).SetAttributes(attribute.String(name, value))
	Attribute func(ctx context.Context, name, value string)
	Logf      func(format string, args ...any) // log.Printf
}

// OneScope is for a service with one caller.
func OneScope(name string) func(*http.Request) string {
	return func(*http.Request) string { return name }
}

// Store is where records are: SQL, pgxonce.Pool, Serve or Memory.
type Store interface {
	open(ctx context.Context, op *Op) (mode, error)
}

// mode is one attempt at a request, with PostgreSQL or with once serve.
type mode interface {
	start(ctx context.Context) (*Response, error)               // a response: there is nothing to run
	finish(ctx context.Context, r *Response) (*Response, error) // records it, and gives the one to send
	derive(ctx context.Context, step string) (key string, err error)
	handlerContext(ctx context.Context) context.Context // made of that of the request
	repeatable(ctx context.Context, err error) bool     // the same again may work, and does no harm
	isUnavailable(err error) bool                       // the answer is 503, and not 500
	overtaken(err error) bool                           // another attempt has the claim
	close(ctx context.Context)                          // rolls back what is not committed
}

// Op is one operation in the handler. Its transaction is that of the request.
type Op struct {
	Bound
	options  *Options
	mode     mode
	request  *http.Request
	scope    string
	key      string
	body     []byte
	id       string // of this request's claim, in every attempt
	gates    bool   // the gate has claimed, and renews
	attempt  int
	outcome  string
	err      error // what the handler failed with: its statements are rolled back
	hasSteps bool  // a checkpoint has committed the claim
}

type contextKey struct{}

// From gives the operation of the handler that is running. It panics if the handler is not guarded.
func From(ctx context.Context) *Op {
	op, _ := ctx.Value(contextKey{}).(*Op)
	if op == nil {
		panic("once: no operation in this context; is the handler guarded by once.Idempotent?")
	}
	return op
}

// Tx is the transaction of the handler with SQL. The handler neither commits nor rolls back. After a checkpoint it is another one.
func Tx(ctx context.Context) *sql.Tx {
	tx, ok := From(ctx).session.Tx().(*sql.Tx)
	if !ok {
		panic("once: no transaction of database/sql; the records are not those of once.SQL")
	}
	return tx
}

// Tx is the driver's transaction, for adapters; nil with Serve.
func (op *Op) Tx() any { return op.session.Tx() }

// Key is the idempotency key of the request.
func (op *Op) Key() string { return op.key }

// Fail says that the handler could not do its work: its statements are rolled back, and repeated if the error is a conflict or a
// lost connection. Handlers of HandlerFunc and JSON return the error instead.
func (op *Op) Fail(err error) { op.err = err }

// Derive gives a key to send to a third party: the same in every attempt, another one for every operation and step.
func (op *Op) Derive(ctx context.Context, step string) (string, error) {
	return op.mode.derive(ctx, step)
}

// Checkpoint commits what was done so far as the step name: a later attempt begins behind it. The next transaction begins without
// a lock on the record: while a third party is asked, this attempt can be overtaken, and is refused then.
func (op *Op) Checkpoint(ctx context.Context, name string, state any) error {
	text, err := toJSON(state)
	if err == nil {
		_, err = op.session.Query(ctx, qCheckpoint, []any{op.claim, name, string(text)})
	}
	if err == nil {
		_, err = op.session.Query(ctx, qRenew, []any{op.claim})
	}
	if err == nil {
		err = op.session.Commit(detached{ctx})
	}
	if err == nil {
		op.hasSteps = true
		err = op.session.Begin(detached{ctx})
	}
	return err
}

// Resume gives the name of the last checkpoint, and its state; "": begin at the beginning.
func (op *Op) Resume(ctx context.Context, state any) (name string, err error) {
	var text string
	found, err := op.session.Query(ctx, qResume, []any{op.claim}, &name, &text)
	if found && err == nil && state != nil {
		err = json.Unmarshal([]byte(text), state)
	}
	return name, err
}

// Idempotent guards handlers. GET, HEAD, OPTIONS and TRACE pass through.
func Idempotent(store Store, options Options) func(http.Handler) http.Handler {
	o := options.complete()
	return func(next http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if strings.Contains(" GET HEAD OPTIONS TRACE ", " "+r.Method+" ") {
				next.ServeHTTP(w, r)
				return
			}
			op := &Op{options: o, request: r}
			answer := op.identify()
			if answer == nil {
				answer = op.read(w)
			}
			if answer == nil {
				answer = op.run(store, next)
			}
			op.tell()
			answer.send(w)
		})
	}
}

func (o Options) complete() *Options {
	if o.Scope == nil {
		panic("once: Options.Scope is needed: whose key it is; OneScope for a service with one caller")
	}
	if o.Lease == 0 {
		o.Lease = 30 * time.Second
	}
	if o.TTL == 0 {
		o.TTL = 24 * time.Hour
	}
	if o.Attempts == 0 {
		o.Attempts = 6
	}
	if o.BodyLimit == 0 {
		o.BodyLimit = 16 << 20
	}
	if o.Logf == nil {
		o.Logf = log.Printf
	}
	return &o
}

// identify finds the key, and the claim of the gate or the scope.
func (op *Op) identify() *Response {
	id := make([]byte, 16)
	if _, err := rand.Read(id); err != nil {
		return unavailable()
	}
	op.id, op.outcome = hex.EncodeToString(id), "invalid"
	var err error
	if keys := op.request.Header.Values("Idempotency-Key"); len(keys) > 0 {
		op.key, err = parseKey(keys)
	}
	claims := op.request.Header.Values("Once-Claim")
	op.gates = len(claims) > 0
	switch {
	case op.gates && (len(claims) > 1 || !isClaim(claims[0])):
		return problem("key-invalid", "the header Once-Claim is not a claim; only once gate may send it", 0)
	case op.gates:
		op.claim = claims[0]
		return nil
	case err != nil:
		return problem("key-invalid", err.Error(), 0)
	case op.key == "":
		op.outcome = "missing"
		return problem("key-missing", "", 0)
	}
	if op.scope = op.options.Scope(op.request); op.scope == "" {
		return problem("scope-missing", "", 0)
	}
	return nil
}

func (op *Op) read(w http.ResponseWriter) *Response {
	limited := http.MaxBytesReader(w, op.request.Body, op.options.BodyLimit)
	body, err := io.ReadAll(limited)
	limited.Close()
	op.body = body
	var tooLarge *http.MaxBytesError
	if errors.As(err, &tooLarge) {
		return (&Error{Status: 413, Value: map[string]string{"error": "the body is too large"}}).response()
	} else if err != nil {
		return (&Error{Status: 400, Value: map[string]string{"error": "the body could not be read"}}).response()
	}
	return nil
}

func (op *Op) target() string {
	if strings.HasPrefix(op.request.RequestURI, "/") {
		return op.request.RequestURI
	}
	return op.request.URL.RequestURI()
}

// told adds what the gate cannot see by the status; clients do not get it.
func (op *Op) told(r *Response, outcome string) *Response {
	if op.gates {
		r.with([2]string{"Once-Outcome", outcome})
	}
	return r
}

func (op *Op) recorded(r *Response) *Response {
	if !op.gates {
		r.with(expires(time.Now().Add(op.options.TTL)))
	}
	return r
}

func (op *Op) tell() {
	if tell := op.options.Attribute; tell != nil {
		tell(op.request.Context(), "once.key", op.key)
		tell(op.request.Context(), "once.outcome", op.outcome)
		tell(op.request.Context(), "once.attempts", strconv.Itoa(op.attempt))
	}
}

// run makes attempts until one of them is through.
func (op *Op) run(store Store, next http.Handler) *Response {
	for {
		op.attempt++
		op.err = nil
		answer, err := op.try(store, next)
		if err == nil {
			return answer
		}
		op.options.Logf("once: %v; attempt %d of %d", err, op.attempt, op.options.Attempts)
		if op.attempt >= op.options.Attempts {
			op.outcome = "error"
			return unavailable()
		}
		doublings := op.attempt
		if doublings > 6 {
			doublings = 6
		}
		time.Sleep(time.Duration(mathrand.Int63n(int64(20*time.Millisecond) << doublings)))
	}
}

// try makes one attempt. An error: the next one is due.
func (op *Op) try(store Store, next http.Handler) (*Response, error) {
	ctx, own := op.request.Context(), detached{op.request.Context()}
	op.outcome = "error"
	m, err := store.open(ctx, op)
	if err != nil {
		op.options.Logf("once: %v", err)
		return unavailable(), nil
	}
	op.mode = m
	defer m.close(own)
	answer, err := m.start(op.startContext())
	if answer == nil && err == nil {
		op.outcome = "run"
		answer = op.handle(next)
		if err = op.err; err == nil || !m.repeatable(own, err) && !m.overtaken(err) {
			answer, err = m.finish(own, answer)
		}
	}
	switch {
	case err == nil:
		return answer, nil
	case ctx.Err() == nil && m.repeatable(own, err):
		return nil, err
	}
	op.options.Logf("once: %v", err)
	if ctx.Err() != nil || m.isUnavailable(err) { // nobody listens, or nobody answers
		op.outcome = "error"
		return unavailable(), nil
	}
	return (&Error{Status: 500}).response(), nil
}

// startContext: the wait for another request ends when the client goes.
func (op *Op) startContext() context.Context {
	if op.options.Wait {
		return op.request.Context()
	}
	return detached{op.request.Context()}
}

// handle runs the handler. Its panic ends the attempt as the answer 500 does, and goes on, unless it is an error to be repeated.
func (op *Op) handle(next http.Handler) (answer *Response) {
	ctx := context.WithValue(op.mode.handlerContext(op.request.Context()), contextKey{}, op)
	request := op.request.WithContext(ctx)
	request.Body, request.ContentLength = io.NopCloser(bytes.NewReader(op.body)), int64(len(op.body))
	recorder := &recorder{header: http.Header{}, limit: op.options.BodyLimit}
	defer func() {
		if value := recover(); value != nil {
			err, _ := value.(error)
			if op.err = err; err == nil {
				op.err = fmt.Errorf("the handler panicked: %v", value)
			}
			answer = (&Error{Status: 500}).response()
			if err == nil || !op.mode.repeatable(detached{ctx}, err) {
				if _, err := op.mode.finish(detached{ctx}, answer); err != nil {
					op.options.Logf("once: %v\n%s", err, debug.Stack())
				}
				panic(value)
			}
		}
	}()
	next.ServeHTTP(recorder, request)
	answer = recorder.response()
	if recorder.err != nil && op.err == nil {
		op.err = recorder.err
	}
	if op.err != nil && answer.Status < 400 { // never a success without its effect
		answer = (&Error{Status: 500}).response()
	}
	return answer
}

// recorder holds the response back until it is recorded.
type recorder struct {
	header http.Header
	sent   http.Header // as it was when the status was written
	status int
	body   []byte
	limit  int64
	err    error
}

func (r *recorder) Header() http.Header { return r.header }

func (r *recorder) WriteHeader(status int) {
	if r.status == 0 && status >= 200 { // informational responses are not recorded
		r.status, r.sent = status, r.header.Clone()
	}
}

func (r *recorder) Write(data []byte) (int, error) {
	r.WriteHeader(http.StatusOK)
	if int64(len(r.body)+len(data)) > r.limit {
		r.err = fmt.Errorf("the response is larger than %d bytes; Options.BodyLimit allows more", r.limit)
		return 0, r.err
	}
	r.body = append(r.body, data...)
	return len(data), nil
}

// response is what net/http would send.
func (r *recorder) response() *Response {
	r.WriteHeader(http.StatusOK)
	if len(r.body) > 0 && r.sent["Content-Type"] == nil && r.sent.Get("Content-Encoding") == "" {
		r.sent.Set("Content-Type", http.DetectContentType(r.body))
	}
	return &Response{r.status, r.sent, r.body}
}

// detached does not end with the request: what is recorded is recorded to the end.
type detached struct{ context.Context }

func (detached) Deadline() (at time.Time, ok bool) { return }
func (detached) Done() <-chan struct{}             { return nil }
func (detached) Err() error                        { return nil }
