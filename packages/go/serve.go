package once

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"time"
)

// ErrNoTransaction is the error of what needs PostgreSQL: events, accepted messages, locks and checkpoints.
var ErrNoTransaction = errors.New("once: the records are behind once serve; this needs a transaction: once.SQL or pgxonce.Pool")

// Serve keeps the records in any store, by way of `once serve` at address: unix:PATH, or http://HOST:PORT with its token. There is
// no transaction: what the handler has done stays done, and if its outcome is not known, it is not run again (Options.Retry).
func Serve(address, token string) Store {
	s := &server{url: address, token: token}
	if path := strings.TrimPrefix(address, "unix:"); path != address {
		s.url = "http://localhost"
		s.client.Transport = &http.Transport{MaxIdleConnsPerHost: 64,
			DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
				return (&net.Dialer{}).DialContext(ctx, "unix", path)
			}}
	}
	return s
}

type server struct {
	url, token string
	client     http.Client
}

func (s *server) open(_ context.Context, op *Op) (mode, error) {
	op.session = noSession{}
	return &call{op, s, make(chan struct{})}, nil
}

// call is an attempt whose effect is the handler's own.
type call struct {
	op     *Op
	server *server
	done   chan struct{}
}

// wire is a response as the server writes it.
type wire struct {
	Status  int         `json:"status"`
	Headers [][2]string `json:"headers"`
	Text    *string     `json:"body,omitempty"`
	Bytes   []byte      `json:"body_base64,omitempty"`
	Omitted any         `json:"body_omitted,omitempty"`
}

func (w *wire) response() *Response {
	if w.Text != nil {
		w.Bytes = []byte(*w.Text)
	}
	if w.Omitted == "erased" {
		w.Headers = append(w.Headers, [2]string{"Once-Body", "erased"})
	} else if w.Omitted == true {
		w.Headers = append(w.Headers, [2]string{"Once-Body", "omitted"})
	}
	return newResponse(w.Status, w.Headers, w.Bytes)
}

// refusedCall is an error that the server answered with.
type refusedCall struct {
	Code, Detail string
	Retryable    bool
}

func (r *refusedCall) Error() string { return fmt.Sprintf("once serve: %s: %s", r.Code, r.Detail) }

// What has run must be recorded, so that is tried for longer.
const beforeRun, afterRun = 5 * time.Second, 15 * time.Second

// ask repeats a question until the server answers it: it may be on its way up again.
func (c *call) ask(ctx context.Context, name string, question map[string]any, into any, patience time.Duration) error {
	asked, err := toJSON(question)
	if err != nil {
		return err
	}
	pause := 20 * time.Millisecond
	for end := time.Now().Add(patience); ; pause += pause / 2 {
		err = c.server.post(ctx, name, asked, into)
		var refused *refusedCall
		if err == nil || ctx.Err() != nil || errors.As(err, &refused) && !refused.Retryable || time.Now().After(end) {
			return err
		}
		time.Sleep(pause)
	}
}

func (s *server) post(ctx context.Context, name string, asked []byte, into any) error {
	ctx, cancel := context.WithTimeout(ctx, 70*time.Second) // longer than the server waits
	defer cancel()
	request, err := http.NewRequestWithContext(ctx, "POST", s.url+"/v1/"+name, bytes.NewReader(asked))
	if err != nil {
		return err
	}
	request.Header.Set("Content-Type", "application/json")
	if s.token != "" {
		request.Header.Set("Authorization", "Bearer "+s.token)
	}
	answer, err := s.client.Do(request)
	if err != nil {
		return err
	}
	defer answer.Body.Close()
	body, err := io.ReadAll(answer.Body)
	if err == nil && answer.StatusCode != 200 {
		refused := &refusedCall{Code: answer.Status}
		json.Unmarshal(body, refused)
		return refused
	} else if err == nil {
		err = json.Unmarshal(body, into)
	}
	return err
}

func (c *call) start(ctx context.Context) (*Response, error) {
	op, o := c.op, c.op.options
	if op.gates {
		return c.startBehindGate(ctx)
	}
	question := map[string]any{"scope": op.scope, "key": op.key, "method": op.request.Method, "target": op.target(),
		"body_base64": notNil(op.body), "ttl_ms": o.TTL.Milliseconds(), "lease_ms": o.Lease.Milliseconds(), "claim_id": op.id}
	if o.Retry {
		question["recover"] = "retry"
	}
	if o.Wait {
		question["wait_ms"] = 60000
	}
	var told struct {
		Outcome, Claim string
		RetryAfter     int64 `json:"retry_after_ms"`
		Expires        int64 `json:"expires_ms"`
		Response       *wire
	}
	if err := c.ask(ctx, "claim", question, &told, beforeRun); err != nil {
		return nil, err
	}
	if told.Outcome == "run" {
		op.claim = told.Claim
		go c.renew(ctx)
		return nil, nil
	}
	op.outcome = told.Outcome
	if told.Outcome == "replay" && told.Response != nil {
		end := time.Now().Add(time.Duration(told.Expires) * time.Millisecond)
		told.Response.Headers = append(told.Response.Headers, replayed, expires(end))
		return told.Response.response(), nil
	}
	return refusal(told.Outcome, time.Duration(told.RetryAfter)*time.Millisecond), nil
}

// startBehindGate runs under the claim of the gate, which also records the response. A client may have made that up.
func (c *call) startBehindGate(ctx context.Context) (*Response, error) {
	var told struct {
		State    string
		Response *wire
	}
	err := c.ask(ctx, "recorded", map[string]any{"claim": c.op.claim}, &told, beforeRun)
	switch {
	case err != nil:
		return nil, err
	case told.Response != nil: // delivered twice
		return told.Response.response(), nil
	case told.State != "pending":
		return unavailable(), nil
	}
	return nil, nil
}

// renew holds the claim while the handler is at work.
func (c *call) renew(ctx context.Context) {
	ticker := time.NewTicker(c.op.options.Lease / 3)
	defer ticker.Stop()
	asked, _ := toJSON(map[string]any{"claims": []string{c.op.claim}})
	for {
		select {
		case <-c.done:
			return
		case <-ticker.C:
			var told struct{}
			if err := c.server.post(detached{ctx}, "renew", asked, &told); err != nil {
				c.op.options.Logf("once: renewing: %v", err)
			}
		}
	}
}

// finish lets the server judge the response, as the gate does.
func (c *call) finish(ctx context.Context, r *Response) (*Response, error) {
	name, question := "finish", map[string]any{"claim": c.op.claim}
	if errors.Is(c.op.err, ErrNothingDone) {
		name, r = "release", c.op.told(r, "retry")
	} else {
		question["response"] = wire{Status: r.Status, Headers: r.recorded(), Bytes: r.Body}
		if c.op.err != nil && r.early() { // which says nothing about what was done before: a 429 may be that of a third party
			question["verdict"], r = "unknown", c.op.told(r, "unknown")
		}
	}
	if c.op.gates {
		return r, nil
	}
	var told struct {
		Outcome  string
		Response *wire
	}
	if err := c.ask(ctx, name, question, &told, afterRun); err != nil {
		return nil, err
	}
	if told.Response != nil && told.Outcome != "done" { // the record has another one
		return told.Response.response(), nil
	} else if told.Outcome == "lost" {
		c.op.outcome = "lost"
		return refusal("busy", 0), nil
	} else if name == "finish" && r.final() {
		return c.op.recorded(r), nil
	}
	return r, nil
}

func (c *call) derive(ctx context.Context, step string) (string, error) {
	var told struct{ Key string }
	err := c.ask(ctx, "derive", map[string]any{"claim": c.op.claim, "step": step}, &told, afterRun)
	if err == nil && told.Key == "" {
		err = errors.New("once: this attempt was overtaken")
	}
	return told.Key, err
}

// handlerContext: nothing undoes half of an operation, so that a client that hangs up does not cancel it.
func (c *call) handlerContext(ctx context.Context) context.Context { return detached{ctx} }

// repeatable: nothing is repeated that has run, and ask has repeated the rest.
func (c *call) repeatable(context.Context, error) bool { return false }

func (c *call) overtaken(error) bool { return false } // finish tells

func (c *call) isUnavailable(err error) bool {
	var refused *refusedCall
	return !errors.As(err, &refused) || refused.Retryable
}

func (c *call) close(context.Context) { close(c.done) }

// noSession is all that operations ask of a session here.
type noSession struct{ Session }

func (noSession) Tx() any { return nil }
func (noSession) Query(context.Context, string, []any, ...any) (bool, error) {
	return false, ErrNoTransaction
}
