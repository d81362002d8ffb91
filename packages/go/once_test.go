package once

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"reflect"
	"strings"
	"sync"
	"testing"
	"time"
)

type order struct {
	Order string `json:"order"`
}

// post sends a request to a handler that is guarded by options and store.
func post(t *testing.T, handler http.Handler, key, body string) *http.Response {
	t.Helper()
	request := httptest.NewRequest("POST", "/payments", strings.NewReader(body))
	if key != "" {
		request.Header.Set("Idempotency-Key", key)
	}
	recorder := httptest.NewRecorder()
	handler.ServeHTTP(recorder, request)
	return recorder.Result()
}

func text(r *http.Response) string {
	body, _ := io.ReadAll(r.Body)
	r.Body = io.NopCloser(strings.NewReader(string(body)))
	return string(body)
}

func check(t *testing.T, r *http.Response, status int, contains string) {
	t.Helper()
	if body := text(r); r.StatusCode != status || !strings.Contains(body, contains) {
		t.Fatalf("%d %s; wanted %d with %q", r.StatusCode, body, status, contains)
	}
}

func quiet() Options { return Options{Scope: OneScope("test"), Logf: func(string, ...any) {}} }

func guard(store Store, handler http.Handler) http.Handler {
	return Idempotent(store, quiet())(handler)
}

func TestFirstAndReplay(t *testing.T) {
	memory, runs := NewMemory(nil), 0
	handler := guard(memory, JSON(201, func(ctx context.Context, in order) (order, error) {
		runs++
		_, err := From(ctx).Emit(ctx, "orders", in.Order, "placed", in)
		return in, err
	}))
	first := post(t, handler, "k", `{"order": "<o>"}`)
	check(t, first, 201, `{"order":"<o>"}`)
	again := post(t, handler, `"k"`, `{"order": "<o>"}`)
	check(t, again, 201, `{"order":"<o>"}`)
	if again.Header.Get("Idempotent-Replayed") != "true" || first.Header.Get("Idempotent-Replayed") != "" || runs != 1 {
		t.Fatal(first.Header, again.Header, runs)
	}
	if again.Header.Get("Content-Type") != "application/json" {
		t.Fatal(again.Header)
	}
	check(t, post(t, handler, "k", `{"order": "other"}`), 422, "urn:once:problem:key-reused")
	check(t, post(t, handler, "bad", `{`), 400, "not the JSON")
	if events := memory.Events(); !reflect.DeepEqual(events, []Event{{"orders", "<o>", "placed", []byte(`{"order":"<o>"}`)}}) {
		t.Fatalf("%q", events)
	}
}

func TestKeys(t *testing.T) {
	handler := guard(NewMemory(nil), http.NotFoundHandler())
	missing := post(t, handler, "", "{}")
	check(t, missing, 400, "urn:once:problem:key-missing")
	if missing.Header.Get("Content-Type") != "application/problem+json" {
		t.Fatal(missing.Header)
	}
	for key, words := range map[string]string{" ": "empty", strings.Repeat("k", 256): "longer than 255", "a, b": "comma",
		`"a`: "closing quote", `"a" b`: "text after", `"a\n"`: "backslash", "é": "not ASCII", `"a", "b"`: "several keys",
		`"a";v=1`: "parameters", "a\x01": "control", `"\`: "backslash"} {
		check(t, post(t, handler, key, "{}"), 400, words)
	}
	twice := httptest.NewRequest("POST", "/", nil)
	twice.Header["Idempotency-Key"] = []string{"a", "b"}
	recorder := httptest.NewRecorder()
	handler.ServeHTTP(recorder, twice)
	check(t, recorder.Result(), 400, "sent 2 times")
	for quoted, key := range map[string]string{`"a\"b\\"`: `a"b\`, " k ": "k", `"a, b"`: "a, b"} {
		if found, err := parseKey([]string{quoted}); err != nil || found != key {
			t.Fatal(quoted, found, err)
		}
	}
	nobody := quiet()
	nobody.Scope = OneScope("")
	check(t, post(t, Idempotent(NewMemory(nil), nobody)(handler), "k", "{}"), 400, "scope-missing")
}

func TestWhatPassesThrough(t *testing.T) {
	handler := guard(NewMemory(nil), http.NotFoundHandler())
	recorder := httptest.NewRecorder()
	handler.ServeHTTP(recorder, httptest.NewRequest("GET", "/", nil))
	check(t, recorder.Result(), 404, "")
}

func TestFailures(t *testing.T) {
	memory, runs := NewMemory(nil), 0
	var result error
	status := 201
	handler := guard(memory, HandlerFunc(func(w http.ResponseWriter, r *http.Request) error {
		runs++
		From(r.Context()).Emit(r.Context(), "orders", "", "placed", "x")
		if status != 0 {
			WriteJSON(w, status, order{"o"})
		}
		return result
	}))
	for _, row := range []struct {
		name          string
		status        int
		err           error
		answer, later int // of the first request and, with another handler, of the second one
		events        int
	}{
		{"success", 201, nil, 201, 201, 1},
		{"refusal", 402, nil, 402, 402, 1},
		{"refused by an error", 0, &Error{Status: 404}, 404, 404, 0},
		{"free: 429", 429, nil, 429, 200, 1},
		{"free: 500", 500, nil, 500, 200, 1},
		{"free: an error", 0, errors.New("no"), 500, 200, 1},
		{"free: an error after a success", 201, errors.New("no"), 500, 200, 1},
		{"free: nothing done", 0, fmt.Errorf("busy: %w", ErrNothingDone), 503, 200, 1},
	} {
		before := len(memory.Events())
		status, result = row.status, row.err
		check(t, post(t, handler, row.name, "{}"), row.answer, "")
		status, result = 200, nil
		check(t, post(t, handler, row.name, "{}"), row.later, "")
		if events := len(memory.Events()) - before; events != row.events {
			t.Fatal(row.name, events)
		}
	}
}

func TestConflictsAreRepeated(t *testing.T) {
	for _, how := range []string{"return", "panic", "fail"} {
		memory, runs := NewMemory(nil), 0
		handler := guard(memory, HandlerFunc(func(w http.ResponseWriter, r *http.Request) error {
			body, _ := io.ReadAll(r.Body)
			From(r.Context()).Emit(r.Context(), "orders", "", "placed", body)
			if runs++; runs < 3 {
				conflict := fmt.Errorf("insert: %w", refused("40001"))
				if how == "panic" {
					panic(conflict)
				} else if how == "return" {
					return conflict
				}
				From(r.Context()).Fail(conflict)
			}
			return WriteJSON(w, 201, order{string(body)})
		}))
		check(t, post(t, handler, "k", "o-1"), 201, "o-1")
		if runs != 3 || len(memory.Events()) != 1 {
			t.Fatal(how, runs, memory.Events())
		}
	}
	always := guard(NewMemory(nil), HandlerFunc(func(http.ResponseWriter, *http.Request) error { return refused("40P01") }))
	answer := post(t, always, "k", "")
	check(t, answer, 503, "store-unavailable")
	if answer.Header.Get("Retry-After") != "1" {
		t.Fatal(answer.Header)
	}
}

func TestPanicsGoOn(t *testing.T) {
	memory, runs := NewMemory(nil), 0
	handler := guard(memory, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		From(r.Context()).Emit(r.Context(), "orders", "", "placed", "x")
		if runs++; runs == 1 {
			panic("as asked")
		}
	}))
	func() {
		defer func() {
			if value := recover(); value != "as asked" {
				t.Fatal(value)
			}
		}()
		post(t, handler, "k", "{}")
	}()
	check(t, post(t, handler, "k", "{}"), 200, "") // the key is free
	if len(memory.Events()) != 1 {
		t.Fatal(memory.Events())
	}
}

func TestBusy(t *testing.T) {
	inside, leave := make(chan struct{}), make(chan struct{})
	handler := guard(NewMemory(nil), http.HandlerFunc(func(http.ResponseWriter, *http.Request) {
		close(inside)
		<-leave
	}))
	var first sync.WaitGroup
	first.Add(1)
	go func() {
		defer first.Done()
		post(t, handler, "k", "{}")
	}()
	<-inside
	busy := post(t, handler, "k", "{}")
	check(t, busy, 409, "urn:once:problem:in-flight")
	if busy.Header.Get("Retry-After") != "1" {
		t.Fatal(busy.Header)
	}
	close(leave)
	first.Wait()
	check(t, post(t, handler, "k", "{}"), 200, "")
}

func TestSteps(t *testing.T) {
	memory, runs, keys := NewMemory(nil), 0, map[string]bool{}
	handler := guard(memory, JSON(201, func(ctx context.Context, _ struct{}) (string, error) {
		op := From(ctx)
		var state order
		done, err := op.Resume(ctx, &state)
		if runs++; err != nil || runs == 1 && done != "" || runs == 2 && (done != "reserved" || state.Order != "o-1") {
			t.Error(runs, done, state, err)
		}
		key, _ := op.Derive(ctx, "transfer")
		keys[key] = true
		if runs == 1 {
			op.Emit(ctx, "orders", "", "reserved", "")
			op.Checkpoint(ctx, "reserved", order{"o-1"})
			op.Emit(ctx, "orders", "", "lost", "")
			return "", errors.New("the provider does not answer")
		}
		return "done", nil
	}))
	check(t, post(t, handler, "k", "{}"), 500, "")
	check(t, post(t, handler, "k", "{}"), 201, "done")
	if events := memory.Events(); len(keys) != 1 || len(events) != 1 || events[0].Type != "reserved" {
		t.Fatal(keys, events)
	}
}

func TestAccept(t *testing.T) {
	bound := NewMemory(nil).Bind()
	for _, wanted := range []bool{true, false} {
		if isNew, err := bound.Accept(context.Background(), "billing", "m-1"); isNew != wanted || err != nil {
			t.Fatal(isNew, err)
		}
	}
}

func TestWhatIsRecorded(t *testing.T) {
	options := quiet()
	options.BodyLimit = 100
	told := map[string]string{}
	options.Attribute = func(_ context.Context, name, value string) { told[name] = value }
	handler := Idempotent(NewMemory(nil), options)(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		w.Header().Add("X-Many", "1")
		w.Header().Add("X-Many", "2")
		w.Header().Set("X-Latin", "\xe9")
		w.Header().Set("Set-Cookie", "a=b")
		w.WriteHeader(103)
		w.WriteHeader(http.StatusAccepted)
		w.Header().Set("X-Late", "no")
		w.Write(body)
		w.Write(body)
	}))
	first, again := post(t, handler, "k", "<html>"), post(t, handler, "k", "<html>")
	for _, r := range []*http.Response{first, again} {
		check(t, r, 202, "<html><html>")
		if len(r.Header["X-Many"]) != 2 || r.Header["Content-Type"][0] != "text/html; charset=utf-8" || r.Header["X-Late"] != nil {
			t.Fatal(r.Header)
		}
	}
	if first.Header["Set-Cookie"] == nil || again.Header["Set-Cookie"] != nil || again.Header.Get("X-Latin") != "é" {
		t.Fatal(first.Header, again.Header)
	}
	if !reflect.DeepEqual(told, map[string]string{"once.key": "k", "once.outcome": "replay", "once.attempts": "1"}) {
		t.Fatal(told)
	}
	check(t, post(t, handler, "k2", strings.Repeat("x", 51)), 500, "")
	check(t, post(t, handler, "k3", strings.Repeat("x", 101)), 413, "too large")
}

func TestGatesClaim(t *testing.T) {
	runs := 0
	handler := guard(NewMemory(nil), http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		runs++
		w.WriteHeader(201)
	}))
	send := func(claim string) *http.Response {
		request := httptest.NewRequest("POST", "/", nil)
		request.Header.Set("Once-Claim", claim)
		recorder := httptest.NewRecorder()
		handler.ServeHTTP(recorder, request)
		return recorder.Result()
	}
	check(t, send("nonsense"), 400, "is not a claim")
	for i := 0; i < 2; i++ { // delivered twice
		r := send(strings.Repeat("c", 70))
		check(t, r, 201, "")
		if r.Header.Get("Idempotent-Replayed") != "" || runs != 1 {
			t.Fatal(r.Header, runs)
		}
	}
}

// The effect of a handler without a transaction is not undone: a client that hangs up must not leave half of it.
func TestServeGoesOnWithoutTheClient(t *testing.T) {
	var judged map[string]any
	serve := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/v1/claim" {
			fmt.Fprint(w, `{"outcome": "run", "claim": "c", "epoch": 1}`)
			return
		}
		json.NewDecoder(r.Body).Decode(&judged)
		fmt.Fprint(w, `{"outcome": "done", "judgement": "record"}`)
	}))
	defer serve.Close()
	type name struct{}
	for store, wanted := range map[Store]error{Serve(serve.URL, ""): nil, NewMemory(nil): context.Canceled} {
		ctx, hangUp := context.WithCancel(context.WithValue(context.Background(), name{}, "kept"))
		handler := guard(store, HandlerFunc(func(w http.ResponseWriter, r *http.Request) error {
			hangUp()
			if r.Context().Err() != wanted || r.Context().Value(name{}) != "kept" {
				t.Error(r.Context().Err(), r.Context().Value(name{}))
			}
			if err := r.Context().Err(); err != nil {
				return err
			}
			return WriteJSON(w, 201, order{"o"})
		}))
		request := httptest.NewRequest("POST", "/", strings.NewReader("{}")).WithContext(ctx)
		request.Header.Set("Idempotency-Key", "k")
		handler.ServeHTTP(httptest.NewRecorder(), request)
	}
	if response, _ := judged["response"].(map[string]any); response["status"] != 201.0 {
		t.Fatal(judged)
	}
}

// TestServe is about the calls; tests/packages has a real server.
func TestServe(t *testing.T) {
	var mu sync.Mutex
	calls, down := []string{}, 1
	serve := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		mu.Lock()
		defer mu.Unlock()
		var asked map[string]any
		json.NewDecoder(r.Body).Decode(&asked)
		calls = append(calls, strings.TrimPrefix(r.URL.Path, "/v1/"))
		switch {
		case r.Header.Get("Authorization") != "Bearer secret":
			w.WriteHeader(401)
			fmt.Fprint(w, `{"code": "ONCE_E_TOKEN", "detail": "no", "retryable": false}`)
		case down > 0:
			down--
			w.WriteHeader(503)
			fmt.Fprint(w, `{"code": "ONCE_E_UNAVAILABLE", "retryable": true}`)
		case r.URL.Path == "/v1/claim" && asked["key"] == "replay":
			fmt.Fprint(w, `{"outcome": "replay", "response": {"status": 201, "headers": [["x-a", "b"]], "body_base64": "aGk="}}`)
		case r.URL.Path == "/v1/claim" && asked["key"] == "erased":
			fmt.Fprint(w, `{"outcome": "replay", "response": {"status": 201, "headers": [], "body_omitted": "erased"}}`)
		case r.URL.Path == "/v1/claim" && asked["key"] == "busy":
			fmt.Fprint(w, `{"outcome": "busy", "retry_after_ms": 2500}`)
		case r.URL.Path == "/v1/claim" && asked["key"] == "unknown":
			fmt.Fprint(w, `{"outcome": "unknown"}`)
		case r.URL.Path == "/v1/claim":
			fmt.Fprintf(w, `{"outcome": "run", "claim": "%s", "epoch": 1}`, asked["key"])
		case r.URL.Path == "/v1/recorded" && asked["claim"] == strings.Repeat("p", 70):
			fmt.Fprint(w, `{"recorded": false, "state": "pending"}`)
		case r.URL.Path == "/v1/recorded":
			fmt.Fprint(w, `{"recorded": false, "state": "none"}`)
		case r.URL.Path == "/v1/derive":
			fmt.Fprint(w, `{"key": "d2-x"}`)
		case r.URL.Path == "/v1/finish" && asked["claim"] == "overtaken":
			fmt.Fprint(w, `{"outcome": "lost", "response": {"status": 202, "headers": [], "body": "theirs"}}`)
		case r.URL.Path == "/v1/finish" && asked["claim"] == "lost":
			fmt.Fprint(w, `{"outcome": "lost"}`)
		default:
			fmt.Fprint(w, `{"outcome": "done", "judgement": "record"}`)
		}
	}))
	defer serve.Close()
	options := quiet()
	options.Lease = 30 * time.Millisecond
	renewed := make(chan struct{})
	handler := Idempotent(Serve(serve.URL, "secret"), options)(HandlerFunc(func(w http.ResponseWriter, r *http.Request) error {
		op := From(r.Context())
		if op.Key() == "nothing" {
			return ErrNothingDone
		}
		if _, err := op.Emit(r.Context(), "a", "", "b", nil); err != ErrNoTransaction {
			t.Error(err)
		}
		for op.Key() == "slow" {
			mu.Lock()
			if strings.Contains(strings.Join(calls, " "), "renew") {
				close(renewed)
				mu.Unlock()
				break
			}
			mu.Unlock()
			time.Sleep(time.Millisecond)
		}
		key, err := op.Derive(r.Context(), "transfer")
		if err == nil {
			err = WriteJSON(w, 201, key)
		}
		return err
	}))
	check(t, post(t, handler, "first", "{}"), 201, "d2-x")
	if got := strings.Join(calls, " "); !strings.HasPrefix(got, "claim claim derive finish") {
		t.Fatal(got)
	}
	check(t, post(t, handler, "slow", "{}"), 201, "d2-x")
	<-renewed
	replay := post(t, handler, "replay", "{}")
	check(t, replay, 201, "hi")
	if replay.Header.Get("Idempotent-Replayed") != "true" || replay.Header.Get("X-A") != "b" {
		t.Fatal(replay.Header)
	}
	if erased := post(t, handler, "erased", "{}"); erased.Header.Get("Once-Body") != "erased" {
		t.Fatal(erased.Header)
	}
	if busy := post(t, handler, "busy", "{}"); busy.StatusCode != 409 || busy.Header.Get("Retry-After") != "3" {
		t.Fatal(busy.Header)
	}
	check(t, post(t, handler, "unknown", "{}"), 409, "outcome-unknown")
	check(t, post(t, handler, "overtaken", "{}"), 202, "theirs")
	check(t, post(t, handler, "lost", "{}"), 409, "in-flight")
	check(t, post(t, handler, "nothing", "{}"), 503, "")
	if calls[len(calls)-1] != "release" {
		t.Fatal(calls)
	}
	check(t, post(t, guard(Serve(serve.URL, "wrong"), handler), "k", "{}"), 500, "")
	for claim, status := range map[string]int{strings.Repeat("p", 70): 201, strings.Repeat("n", 70): 503} { // behind the gate
		request := httptest.NewRequest("POST", "/", nil)
		request.Header.Set("Once-Claim", claim)
		recorder := httptest.NewRecorder()
		calls = nil
		handler.ServeHTTP(recorder, request)
		check(t, recorder.Result(), status, "")
		if got := strings.Join(calls, " "); strings.Contains(got, "finish") || !strings.HasPrefix(got, "recorded") {
			t.Fatal(got)
		}
	}
}
