// Payments that are made exactly once: the payment and the record of it are one transaction. Runs behind `once gate`.
//
//	DATABASE='postgres://shop@localhost/shop?sslmode=disable' PORT=3000 go run .
package main

import (
	"database/sql"
	"encoding/json"
	"errors"
	"log"
	"net"
	"net/http"
	"os"
	"regexp"

	"github.com/lib/pq"
)

type payment struct{ Order, Account, Amount string }
type answer map[string]any

const upsert = `INSERT INTO accounts AS a (id, spent) VALUES ($1, $2)
	ON CONFLICT (id) DO UPDATE SET spent = a.spent + excluded.spent WHERE a.spent + excluded.spent <= a.credit
	RETURNING xmax = 0`
const insert = `INSERT INTO payments (idempotency_key, order_id, account, amount) VALUES (btrim($1, '"'), $2, $3, $4) RETURNING id`

// The business. What it decides is recorded, whether money moved or not.
func pay(tx *sql.Tx, claim, key string, asked payment) (status int, result answer, err error) {
	var id int64
	var first bool // the account's row was inserted just now, and by us (xmax = 0)
	// Still ours? And one at a time for this order: a second click may well come with a key of its own.
	if _, err = tx.Exec("SELECT once.renew($1), once.lock('order:' || $2::text)", claim, asked.Order); err != nil {
		return
	}
	err = tx.QueryRow("SELECT id FROM payments WHERE order_id = $1", asked.Order).Scan(&id)
	if err != sql.ErrNoRows {
		return 409, answer{"error": "this order is paid", "payment": id}, err
	}
	err = tx.QueryRow(upsert, asked.Account, asked.Amount).Scan(&first)
	if err == sql.ErrNoRows { // the guard of the UPSERT did not let it through
		return 402, answer{"error": "over the limit of the account"}, nil
	} else if err == nil {
		err = tx.QueryRow(insert, key, asked.Order, asked.Account, asked.Amount).Scan(&id)
	}
	return 201, answer{"payment": id, "order": asked.Order, "amount": asked.Amount, "first": first}, err
}

func transaction(db *sql.DB, claim, key string, asked payment) (status int, body []byte, err error) {
	tx, err := db.Begin()
	if err != nil {
		return
	}
	defer tx.Rollback() // after COMMIT it does nothing
	status, result, err := pay(tx, claim, key, asked)
	if err == nil {
		body, _ = json.Marshal(result)
		_, err = tx.Exec(`SELECT once.complete($1, $2, '{"Content-Type": "application/json"}', $3)`, claim, status, string(body))
	}
	if err == nil {
		return status, body, tx.Commit()
	}
	var refused *pq.Error
	if errors.As(err, &refused) && refused.Code == "ON002" { // this claim is completed: we were here before
		err = db.QueryRow("SELECT status, body FROM once.recorded($1)", claim).Scan(&status, &body)
	}
	return
}

func main() {
	db, err := sql.Open("postgres", os.Getenv("DATABASE"))
	if err != nil {
		log.Fatal(err)
	}
	wellFormed := regexp.MustCompile(`^[\w.:-]{1,100} [\w.:-]{1,100} (0\.0[1-9]|0\.[1-9]\d|[1-9]\d{0,2}\.\d\d)$`)
	http.HandleFunc("/payments", func(w http.ResponseWriter, r *http.Request) {
		var asked payment
		w.Header().Set("Content-Type", "application/json")
		if json.NewDecoder(r.Body).Decode(&asked) != nil || !wellFormed.MatchString(asked.Order+" "+asked.Account+" "+asked.Amount) {
			http.Error(w, `{"error": "order, account and an amount like 12.50 are needed"}`, 422)
			return
		}
		for try := 0; try < 2; try++ { // a COMMIT whose reply was lost may be done: the second time, once.renew tells
			status, body, err := transaction(db, r.Header.Get("Once-Claim"), r.Header.Get("Idempotency-Key"), asked)
			if err == nil {
				w.WriteHeader(status)
				w.Write(body)
				return
			}
			log.Print(err)
		}
		http.Error(w, `{"error": "not now"}`, 503) // ON001, or no database: the gate answers from the record
	})
	listener, err := net.Listen("tcp", "127.0.0.1:"+os.Getenv("PORT"))
	if err != nil {
		log.Fatal(err)
	}
	log.Printf("listening on http://%s", listener.Addr())
	log.Fatal(http.Serve(listener, nil))
}
