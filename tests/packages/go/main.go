// The application of the suite (../README.md) with net/http. DRIVER says how it reaches its records and its business table.
package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"os"

	"once"
)

// business is what differs between drivers.
type business interface {
	store() once.Store
	// row runs a statement, in the transaction of the operation if there is one, and scans its row.
	row(ctx context.Context, statement string, args []any, into ...any) error
	accept(ctx context.Context, id string) (bool, error)
}

type asked struct {
	Order, Then, Provider string
	Note                  *string
}

type paid struct {
	Payment int64   `json:"payment"`
	Number  int64   `json:"number"`
	Order   string  `json:"order"`
	Note    *string `json:"note"`
	Event   *string `json:"event"`
}

type app struct {
	business
	isStore bool
}

const insert = "INSERT INTO payments (order_id, number, note) VALUES ($1, $2, $3) RETURNING id"

var (
	refused = &once.Error{Status: 402, Value: map[string]string{"error": "refused"}}
	nothing = fmt.Errorf("not now: %w", once.ErrNothingDone)
	later   = map[string]string{"error": "later"}
)

func (a app) pay(w http.ResponseWriter, r *http.Request) error {
	var in asked
	if err := once.ReadJSON(r, &in); err != nil {
		return err
	}
	if a.isStore {
		switch in.Then {
		case "refuse":
			return refused
		case "later":
			return once.WriteJSON(w, 429, later)
		case "release":
			return nothing
		}
	}
	ctx, made := r.Context(), paid{Order: in.Order, Note: in.Note}
	err := a.row(ctx, "SELECT count(*) + 1 FROM payments WHERE order_id = $1", []any{in.Order}, &made.Number)
	if err != nil {
		return err
	}
	if err = a.row(ctx, insert, []any{in.Order, made.Number, in.Note}, &made.Payment); err != nil {
		return err
	}
	if !a.isStore {
		event, err := once.From(ctx).Emit(ctx, "payments", in.Order, "paid", map[string]any{"order": in.Order, "note": in.Note})
		if err != nil {
			return err
		}
		made.Event = &event
	}
	switch in.Then {
	case "raise":
		panic("as asked")
	case "release":
		return nothing
	case "refuse":
		return refused
	case "refuse later":
		return &once.Error{Status: 429, Value: later}
	case "refuse in the transaction":
		return once.WriteJSON(w, 402, map[string]string{"error": "no"})
	case "later":
		return once.WriteJSON(w, 429, later)
	case "bytes":
		all := make([]byte, 512)
		for i := range all {
			all[i] = byte(i)
		}
		w.Header().Set("Content-Type", "application/octet-stream")
		_, err := w.Write(all)
		return err
	}
	w.Header().Set("X-Order", in.Order)
	return once.WriteJSON(w, 201, made)
}

type transferred struct {
	ID string `json:"id"`
}

func (a app) payOut(ctx context.Context, in asked) (any, error) {
	var id int64
	var state transferred
	op := once.From(ctx)
	if a.isStore {
		err := transfer(ctx, in, &state)
		if err == nil {
			err = a.row(ctx, insert, []any{in.Order, 0, state.ID}, &id)
		}
		return map[string]string{"transfer": state.ID}, err
	}
	done, err := op.Resume(ctx, &state)
	if err != nil {
		return nil, err
	}
	if done == "" {
		if err := a.row(ctx, insert, []any{in.Order, 0, "reserved"}, &id); err != nil {
			return nil, err
		}
		if err := op.Checkpoint(ctx, "reserved", nil); err != nil {
			return nil, err
		}
	}
	if done != "transferred" {
		if err := transfer(ctx, in, &state); err != nil {
			return nil, err
		}
		if err := op.Checkpoint(ctx, "transferred", state); err != nil {
			return nil, err
		}
	}
	err = a.row(ctx, "UPDATE payments SET note = $1 WHERE order_id = $2 RETURNING id", []any{state.ID, in.Order}, &id)
	return map[string]string{"transfer": state.ID}, err
}

// transfer asks the provider, which knows the key.
func transfer(ctx context.Context, in asked, state *transferred) error {
	key, err := once.From(ctx).Derive(ctx, "transfer")
	if err != nil {
		return err
	}
	body, _ := json.Marshal(map[string]string{"order": in.Order})
	request, err := http.NewRequestWithContext(ctx, "POST", in.Provider, bytes.NewReader(body))
	if err != nil {
		return err
	}
	request.Header.Set("Idempotency-Key", key)
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return err
	}
	defer response.Body.Close()
	return json.NewDecoder(response.Body).Decode(state)
}

func (a app) events(w http.ResponseWriter, r *http.Request) error {
	id, err := io.ReadAll(r.Body)
	if err != nil {
		return err
	}
	isNew, err := a.accept(r.Context(), string(id))
	if err != nil {
		return err
	}
	return once.WriteJSON(w, 200, map[string]bool{"new": isNew})
}

// recovered answers with 500 when a handler panics, as middleware of many services does.
func recovered(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		defer func() {
			if value := recover(); value != nil {
				http.Error(w, "internal error", http.StatusInternalServerError)
			}
		}()
		next.ServeHTTP(w, r)
	})
}

func main() {
	var a app
	driver, database := os.Getenv("DRIVER"), os.Getenv("DATABASE")
	switch driver {
	case "pgx":
		a.business = openPgx(database, false)
	case "store":
		a.business, a.isStore = openPgx(database, true), true
	default:
		a.business = openSQL(driver, database)
	}
	options := once.Options{Scope: once.OneScope("tenant-7")}
	if lease := os.Getenv("LEASE"); lease != "" {
		options.Lease = seconds(lease)
	}
	idempotent := once.Idempotent(a.store(), options)
	http.Handle("/payments", idempotent(once.HandlerFunc(a.pay)))
	http.Handle("/payouts", idempotent(once.JSON(201, a.payOut)))
	http.Handle("/events", once.HandlerFunc(a.events))
	listener, err := net.Listen("tcp", "127.0.0.1:"+os.Getenv("PORT"))
	if err != nil {
		log.Fatal(err)
	}
	fmt.Printf("listening on http://%s\n", listener.Addr())
	log.Fatal(http.Serve(listener, recovered(http.DefaultServeMux)))
}
