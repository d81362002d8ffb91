//go:build gate

// Against a real gate: tests/clients runs this in tests/clients/world.py, which sets GATE and LOSSY.

package once

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

func world(t *testing.T) (string, string) {
	if os.Getenv("GATE") == "" {
		t.Fatal("GATE is not set")
	}
	return os.Getenv("GATE"), os.Getenv("LOSSY")
}

func fast() *Transport {
	return &Transport{Deadline: 2 * time.Minute, Pause: 10 * time.Millisecond, PauseMax: 50 * time.Millisecond}
}

type answered struct {
	status   int
	replayed bool
	problem  string
	key      string
}

func send(transport *Transport, url, body string, headers ...string) (answered, error) {
	request, err := http.NewRequest("POST", url, strings.NewReader(body))
	if err != nil {
		return answered{}, err
	}
	for i := 0; i+1 < len(headers); i += 2 {
		request.Header.Set(headers[i], headers[i+1])
	}
	response, err := (&http.Client{Transport: transport}).Do(request)
	if err != nil {
		return answered{}, err
	}
	name := Problem(response)
	defer response.Body.Close()
	text, err := io.ReadAll(response.Body)
	var paid struct{ Key string }
	_ = json.Unmarshal(text, &paid)
	return answered{response.StatusCode, response.Header.Get("Idempotent-Replayed") == "true", name, paid.Key}, err
}

type deed struct{ Requests, Payments, Elsewhere int }

func ask(t *testing.T, verb, key string) deed {
	gate, _ := world(t)
	var found deed
	response, err := http.Get(gate + "/" + verb + "/" + key)
	if err == nil {
		defer response.Body.Close()
		err = json.NewDecoder(response.Body).Decode(&found)
	}
	if err != nil {
		t.Fatal(err)
	}
	return found
}

func same(t *testing.T, got, want any, err error) {
	t.Helper()
	if err != nil || got != want {
		t.Fatalf("%+v, not %+v (%v)", got, want, err)
	}
}

func newKey(t *testing.T) string {
	request, _ := http.NewRequest("POST", "/", nil)
	key, err := (&Transport{}).keyOf(request, "", nil)
	if err != nil {
		t.Fatal(err)
	}
	return key
}

const payment = `{"amount": 4200}`

func TestClientRetries(t *testing.T) {
	gate, lossy := world(t)
	got, err := send(fast(), gate+"/payments?plan=429,500,ok", payment)
	same(t, got, answered{201, false, "", got.key}, err)
	same(t, ask(t, "seen", got.key), deed{3, 1, 0}, nil)

	key := newKey(t)
	got, err = send(fast(), lossy+"/payments", payment, "Idempotency-Key", key)
	same(t, got, answered{201, true, "", key}, err)
	same(t, ask(t, "seen", key), deed{1, 1, 0}, nil)
}

func TestClientWaitsForWhatIsInFlight(t *testing.T) {
	gate, _ := world(t)
	key, first := newKey(t), make(chan error, 1)
	go func() {
		_, err := send(fast(), gate+"/payments?plan=hold", payment, "Idempotency-Key", key)
		first <- err
	}()
	ask(t, "reached", key)
	pauses, waiting := 0, fast()
	waiting.draw = func(time.Duration) time.Duration {
		pauses++
		ask(t, "release", key)
		return 0
	}
	got, err := send(waiting, gate+"/payments?plan=hold", payment, "Idempotency-Key", key)
	same(t, got, answered{201, true, "", key}, err)
	same(t, pauses > 0, true, <-first)
	same(t, ask(t, "seen", key), deed{1, 1, 0}, nil)
}

func TestClientStops(t *testing.T) {
	gate, _ := world(t)
	key := newKey(t)
	got, err := send(fast(), gate+"/held?plan=cut", payment, "Idempotency-Key", key)
	same(t, got, answered{409, false, "outcome-unknown", ""}, err)
	same(t, ask(t, "seen", key), deed{1, 1, 0}, nil)

	key = newKey(t)
	_, err = send(fast(), gate+"/payments", payment, "Idempotency-Key", key)
	same(t, nil, nil, err)
	got, err = send(fast(), gate+"/payments", "{}", "Idempotency-Key", key)
	same(t, got, answered{422, false, "key-reused", ""}, err)

	short := func() *Transport { // the fourth pause would be too long
		n, transport := 0, fast()
		transport.draw = func(time.Duration) time.Duration {
			n++
			return map[bool]time.Duration{true: 0, false: time.Hour}[n < 4]
		}
		return transport
	}
	key = newKey(t)
	got, err = send(short(), gate+"/payments?plan=429", payment, "Idempotency-Key", key)
	same(t, got, answered{429, false, "", ""}, err)
	same(t, ask(t, "seen", key), deed{4, 0, 0}, nil)
	if _, err = send(short(), "http://127.0.0.1:1/payments", payment); err == nil {
		t.Fatal("an answer from nobody")
	}
}

func TestClientDoesNotFollowRedirects(t *testing.T) {
	gate, _ := world(t)
	for _, status := range []int{301, 302, 303, 307, 308} {
		key, redirected := newKey(t), (*Redirected)(nil)
		got, err := send(fast(), fmt.Sprintf("%s/payments?plan=%d", gate, status), payment, "Idempotency-Key", key,
			"Authorization", "Bearer s3cret")
		if !errors.As(err, &redirected) || !strings.Contains(err.Error(), key) {
			t.Fatalf("%d: %+v, %v", status, got, err)
		}
		same(t, redirected.Response.StatusCode, status, nil)
		same(t, ask(t, "seen", key), deed{1, 0, 0}, nil)
	}
}

// Not after the earliest time that an answer has told, however the attempts since then have ended.
func TestClientDoesNotOutliveTheKey(t *testing.T) {
	count := 0
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if count++; count == 1 {
			w.Header().Set("Idempotency-Expires", time.Now().Add(time.Minute).UTC().Format(http.TimeFormat))
		}
		w.WriteHeader(503)
	}))
	defer server.Close()
	pauses := []time.Duration{0, 0, 2 * time.Minute, 0}
	transport := &Transport{Deadline: time.Hour, draw: func(time.Duration) time.Duration {
		next := pauses[0]
		pauses = pauses[1:]
		return next
	}}
	got, err := send(transport, server.URL, payment)
	same(t, got, answered{503, false, "", ""}, err)
	same(t, count, 3, nil)
}

// A process is killed while its request is at work; this one goes on with its key.
func TestClientJournal(t *testing.T) {
	gate, _ := world(t)
	url, directory := gate+"/payments?plan=hold", os.Getenv("CLIENT_JOURNAL")
	if directory != "" { // the process that is killed
		journal, err := OpenJournal(directory, 0)
		if err == nil {
			_, err = send(&Transport{Journal: journal}, url, payment, "Once-Intent", "order-1",
				"Idempotency-Key", os.Getenv("CLIENT_KEY"))
		}
		t.Fatal(err)
	}
	key := newKey(t)
	directory = t.TempDir()
	child := exec.Command(os.Args[0], "-test.run", "TestClientJournal")
	child.Env = append(os.Environ(), "CLIENT_JOURNAL="+directory, "CLIENT_KEY="+key)
	same(t, nil, nil, child.Start())
	ask(t, "reached", key)
	same(t, nil, nil, child.Process.Kill())
	_ = child.Wait()
	ask(t, "release", key)

	journal, err := OpenJournal(directory, 0)
	same(t, nil, nil, err)
	transport := fast()
	transport.Journal = journal
	got, err := send(transport, url, payment, "Once-Intent", "order-1")
	same(t, got, answered{201, true, "", key}, err)
	if _, err = send(transport, url, "{}", "Once-Intent", "order-1"); !errors.Is(err, ErrIntentChanged) {
		t.Fatal(err)
	}
	same(t, nil, nil, journal.ended("order-1", time.Now().Add(-time.Minute)))
	if _, err = send(transport, url, payment, "Once-Intent", "order-1"); !errors.Is(err, ErrIntentExpired) {
		t.Fatal(err)
	}
	same(t, ask(t, "seen", key), deed{1, 1, 0}, nil)
	entries, err := os.ReadDir(directory)
	same(t, len(entries), 1, err)
}

func TestClientForgets(t *testing.T) {
	directory, want := t.TempDir(), []string{"half.new", "notes.txt", "orders.json"}
	journal, err := OpenJournal(directory, time.Second)
	same(t, nil, nil, err)
	_, err = journal.key("old", "r", "k")
	same(t, nil, nil, err)
	for _, name := range want {
		same(t, nil, nil, os.WriteFile(filepath.Join(directory, name), []byte("{"), 0o600))
	}
	same(t, nil, nil, os.Mkdir(filepath.Join(directory, "orders"), 0o700))
	torn := ""
	same(t, nil, nil, journal.put("torn", &intent{}, func(from, _ string) error { torn = from; return nil }))
	same(t, nil, nil, os.WriteFile(torn, []byte("{"), 0o600)) // as a process that is killed leaves it
	entries, err := os.ReadDir(directory)
	for _, entry := range entries {
		same(t, nil, err, os.Chtimes(filepath.Join(directory, entry.Name()), time.Unix(0, 0), time.Unix(0, 0)))
	}
	_, err = journal.key("new", "r", "k")
	same(t, nil, nil, err)
	_, err = OpenJournal(directory, time.Second)
	same(t, nil, nil, err)
	entries, err = os.ReadDir(directory)
	same(t, len(entries), len(want)+2, err)
	for _, name := range append(want, "orders", filepath.Base(journal.path("new"))) {
		_, err = os.Stat(filepath.Join(directory, name))
		same(t, nil, nil, err)
	}
}

func TestClientPauses(t *testing.T) {
	transport := &Transport{Pause: time.Second, PauseMax: 5 * time.Second,
		draw: func(most time.Duration) time.Duration { return most }}
	for attempt, want := range []time.Duration{1, 2, 4, 5, 5} {
		same(t, transport.pause(attempt), want*time.Second, nil)
	}
	same(t, transport.pause(1000), 5*time.Second, nil)
}
