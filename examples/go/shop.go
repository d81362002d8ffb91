// Payments that are made exactly once, with net/http and pgx: docs/go.md.
package main

import (
	"context"
	"log"
	"net"
	"net/http"
	"os"

	"github.com/jackc/pgx/v5/pgxpool"

	"once"
	"once/pgxonce"
)

type Payment struct {
	Order  string `json:"order"`
	Amount string `json:"amount"`
}

type Paid struct {
	Payment int64  `json:"payment"`
	Order   string `json:"order"`
}

func pay(ctx context.Context, payment Payment) (Paid, error) {
	paid := Paid{Order: payment.Order}
	err := pgxonce.Tx(ctx).QueryRow(ctx, "INSERT INTO paid (order_id, amount) VALUES ($1, $2) RETURNING id",
		payment.Order, payment.Amount).Scan(&paid.Payment)
	if err == nil {
		_, err = once.From(ctx).Emit(ctx, "payments", payment.Order, "paid", payment)
	}
	return paid, err
}

func main() {
	pool, err := pgxpool.New(context.Background(), "postgres:///shop")
	if err != nil {
		log.Fatal(err)
	}
	idempotent := once.Idempotent(pgxonce.Pool(pool), once.Options{Scope: once.OneScope("the only client")})
	http.Handle("/payments", idempotent(once.JSON(201, pay)))
	listener, err := net.Listen("tcp", "127.0.0.1:"+os.Getenv("PORT"))
	if err != nil {
		log.Fatal(err)
	}
	log.Print("shop: ready")
	log.Fatal(http.Serve(listener, nil))
}
