// Payments that are made exactly once: the payment and the record of it are one transaction. Runs behind `once gate`, or without.
//
//	DATABASE='postgres://shop@localhost/shop?sslmode=disable' PORT=3000 go run .
package main

import (
	"bytes"
	"database/sql"
	"encoding/json"
	"io"
	"log"
	"net"
	"net/http"
	"os"
	"regexp"

	_ "github.com/lib/pq"

	"once"
)

type payment struct{ Order, Account, Amount string }
type answer map[string]any

const upsert = `INSERT INTO accounts AS a (id, spent) VALUES ($1, $2)
	ON CONFLICT (id) DO UPDATE SET spent = a.spent + excluded.spent WHERE a.spent + excluded.spent <= a.credit
	RETURNING xmax = 0`
const insert = `INSERT INTO payments (idempotency_key, order_id, account, amount) VALUES ($1, $2, $3, $4) RETURNING id`

// The business. What it decides is recorded, whether money moved or not.
func pay(w http.ResponseWriter, r *http.Request) error {
	var asked payment
	if err := once.ReadJSON(r, &asked); err != nil {
		return err
	}
	var id int64
	var first bool // the account's row was inserted just now, and by us (xmax = 0)
	ctx, op, tx := r.Context(), once.From(r.Context()), once.Tx(r.Context())
	if err := op.Lock(ctx, "order:"+asked.Order); err != nil { // one at a time: a second click may come with a key of its own
		return err
	}
	err := tx.QueryRowContext(ctx, "SELECT id FROM payments WHERE order_id = $1", asked.Order).Scan(&id)
	if err == nil {
		return once.WriteJSON(w, 409, answer{"error": "this order is paid", "payment": id})
	} else if err != sql.ErrNoRows {
		return err
	}
	err = tx.QueryRowContext(ctx, upsert, asked.Account, asked.Amount).Scan(&first)
	if err == sql.ErrNoRows { // the guard of the UPSERT did not let it through
		return once.WriteJSON(w, 402, answer{"error": "over the limit of the account"})
	} else if err != nil {
		return err
	}
	err = tx.QueryRowContext(ctx, insert, op.Key(), asked.Order, asked.Account, asked.Amount).Scan(&id)
	if err != nil {
		return err
	}
	return once.WriteJSON(w, 201, answer{"payment": id, "order": asked.Order, "amount": asked.Amount, "first": first})
}

var wellFormed = regexp.MustCompile(`^[\w.:-]{1,100} [\w.:-]{1,100} (0\.0[1-9]|0\.[1-9]\d|[1-9]\d{0,2}\.\d\d)$`)

// checked refuses what can never be paid, before the database is asked.
func checked(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		var asked payment
		body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, 1<<20))
		if err != nil || json.Unmarshal(body, &asked) != nil ||
			!wellFormed.MatchString(asked.Order+" "+asked.Account+" "+asked.Amount) {
			once.WriteJSON(w, 422, answer{"error": "order, account and an amount like 12.50 are needed"})
			return
		}
		r.Body = io.NopCloser(bytes.NewReader(body))
		next.ServeHTTP(w, r)
	})
}

func main() {
	db, err := sql.Open("postgres", os.Getenv("DATABASE"))
	if err != nil {
		log.Fatal(err)
	}
	idempotent := once.Idempotent(once.SQL(db), once.Options{Scope: once.OneScope("the only client")})
	http.Handle("/payments", checked(idempotent(once.HandlerFunc(pay))))
	listener, err := net.Listen("tcp", "127.0.0.1:"+os.Getenv("PORT"))
	if err != nil {
		log.Fatal(err)
	}
	log.Printf("listening on http://%s", listener.Addr())
	log.Fatal(http.Serve(listener, nil))
}
