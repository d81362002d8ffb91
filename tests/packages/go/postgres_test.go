package main

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5/pgxpool"

	"once"
	"once/pgxonce"
)

// open gives a pool of the server that tests/postgres/with-server has started, with a table of its own.
func open(t *testing.T) *pgxpool.Pool {
	pool, err := pgxpool.New(context.Background(), os.Getenv("ONCE_PG_URL"))
	if err == nil {
		_, err = pool.Exec(context.Background(), "DROP TABLE IF EXISTS made; CREATE TABLE made (name text UNIQUE)")
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(pool.Close)
	return pool
}

func count(t *testing.T, pool *pgxpool.Pool) (rows int) {
	if err := pool.QueryRow(context.Background(), "SELECT count(*) FROM made").Scan(&rows); err != nil {
		t.Fatal(err)
	}
	return rows
}

func post(handler http.Handler, key string) *http.Response {
	request := httptest.NewRequest("POST", "/made", strings.NewReader("{}"))
	request.Header.Set("Idempotency-Key", key)
	recorder := httptest.NewRecorder()
	handler.ServeHTTP(recorder, request)
	return recorder.Result()
}

// A handler that does not look at its errors gets no success recorded, and a refusal without an effect.
func TestStatementFailedUnseen(t *testing.T) {
	pool := open(t)
	status, fails := 0, true
	handler := once.Idempotent(pgxonce.Pool(pool), once.Options{Scope: once.OneScope(t.Name())})(
		http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			tx := pgxonce.Tx(r.Context())
			tx.Exec(r.Context(), "INSERT INTO made VALUES ($1)", r.Header.Get("Idempotency-Key"))
			if fails {
				tx.Exec(r.Context(), "SELECT 1/0")
			}
			w.WriteHeader(status)
		}))
	if status = 201; post(handler, "success").StatusCode != 500 || count(t, pool) != 0 {
		t.Fatal("a success without its effect")
	}
	if status = 409; post(handler, "refusal").StatusCode != 409 || count(t, pool) != 0 {
		t.Fatal("a refusal with an effect")
	}
	status, fails = 201, false
	if again := post(handler, "refusal"); again.StatusCode != 409 || again.Header.Get("Idempotent-Replayed") != "true" {
		t.Fatal("the refusal was not recorded")
	}
	if post(handler, "success").StatusCode != 201 || count(t, pool) != 1 {
		t.Fatal("the key was not free")
	}
}

// A handler cannot commit without its record. With database/sql it can, and gets an error for it.
func TestHandlerEndsItsTransaction(t *testing.T) {
	pool := open(t)
	handler := once.Idempotent(pgxonce.Pool(pool), once.Options{Scope: once.OneScope(t.Name())})(
		once.JSON(201, func(ctx context.Context, _ struct{}) (string, error) {
			tx := pgxonce.Tx(ctx)
			defer tx.Rollback(ctx) // a habit
			_, err := tx.Exec(ctx, "INSERT INTO made VALUES ('x')")
			if err == nil && tx.Commit(ctx) == nil {
				t.Error("committed")
			}
			return "done", err
		}))
	if post(handler, "k").StatusCode != 201 || count(t, pool) != 1 {
		t.Fatal(count(t, pool))
	}
}

func TestWait(t *testing.T) {
	pool := open(t)
	inside, leave := make(chan struct{}), make(chan struct{})
	handler := once.Idempotent(pgxonce.Pool(pool), once.Options{Scope: once.OneScope(t.Name()), Wait: true})(
		once.JSON(201, func(ctx context.Context, _ struct{}) (string, error) {
			_, err := pgxonce.Tx(ctx).Exec(ctx, "INSERT INTO made VALUES ('x')")
			close(inside)
			<-leave
			return "done", err
		}))
	answers := make(chan *http.Response, 2)
	for i := 0; i < 2; i++ {
		go func() { answers <- post(handler, "k") }()
		if i == 0 {
			<-inside
		}
	}
	for waiting := false; !waiting; { // for the transaction of the first
		pool.QueryRow(context.Background(), "SELECT count(*) > 0 FROM pg_stat_activity WHERE wait_event_type = 'Lock'").Scan(&waiting)
	}
	close(leave)
	replays := 0
	for i := 0; i < 2; i++ {
		answer := <-answers
		if answer.StatusCode != 201 {
			t.Fatal(answer.Status)
		}
		replays += len(answer.Header["Idempotent-Replayed"])
	}
	if replays != 1 || count(t, pool) != 1 {
		t.Fatal(replays, count(t, pool))
	}
}

func TestLockAndHeadersOfEvents(t *testing.T) {
	pool := open(t)
	handler := once.Idempotent(pgxonce.Pool(pool), once.Options{Scope: once.OneScope(t.Name())})(
		once.JSON(200, func(ctx context.Context, _ struct{}) (string, error) {
			op := once.From(ctx)
			if err := op.Lock(ctx, "order:7"); err != nil {
				return "", err
			}
			return op.Emit(ctx, "orders", "", "placed", []byte("raw"), [2]string{"trace", "t-1"})
		}))
	if answer := post(handler, "k"); answer.StatusCode != 200 {
		t.Fatal(answer.Status)
	}
	var isRight bool
	pool.QueryRow(context.Background(), "SELECT key IS NULL AND payload = 'raw'::bytea AND headers->>'trace' = 't-1' "+
		"FROM once.outbox WHERE topic = 'orders'").Scan(&isRight)
	if !isRight {
		t.Fatal("another event")
	}
}

type conflict struct{}

func (conflict) Error() string    { return "a conflict" }
func (conflict) SQLState() string { return "40001" }

// A checkpoint has committed the claim. Whichever attempt fails for good afterwards, the key is free without waiting for a lease.
func TestReleasedAfterSteps(t *testing.T) {
	pool, runs := open(t), 0
	handler := once.Idempotent(pgxonce.Pool(pool), once.Options{Scope: once.OneScope(t.Name())})(
		once.JSON(201, func(ctx context.Context, _ struct{}) (string, error) {
			op := once.From(ctx)
			done, err := op.Resume(ctx, nil)
			if err == nil && done == "" {
				err = op.Checkpoint(ctx, "begun", nil)
			}
			if runs++; err == nil && runs == 1 {
				err = conflict{}
			} else if err == nil && runs == 2 {
				err = errors.New("the provider does not answer")
			}
			return done, err
		}))
	if answer := post(handler, "k"); answer.StatusCode != 500 || runs != 2 {
		t.Fatal(answer.Status, runs)
	}
	if answer := post(handler, "k"); answer.StatusCode != 201 || runs != 3 {
		t.Fatal(answer.Status, runs)
	}
}
