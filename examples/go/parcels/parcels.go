// Parcels that are sent once, with the records in any store: docs/go.md. The carrier takes its time, and does not know keys.
package main

import (
	"context"
	"fmt"
	"log"
	"net"
	"net/http"
	"os"
	"time"

	"once"
)

type Parcel struct {
	To    string `json:"to"`
	Takes int    `json:"takes"` // seconds
}

func send(ctx context.Context, parcel Parcel) (map[string]string, error) {
	carrier, err := os.OpenFile(os.Getenv("SENT"), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return nil, fmt.Errorf("%w: %v", once.ErrNothingDone, err)
	}
	defer carrier.Close()
	if _, err = fmt.Fprintln(carrier, parcel.To); err != nil {
		return nil, err
	}
	time.Sleep(time.Duration(parcel.Takes) * time.Second)
	return map[string]string{"sent": parcel.To}, nil
}

func main() {
	records := once.Serve(os.Getenv("SERVE"), "")
	idempotent := once.Idempotent(records, once.Options{Scope: once.OneScope("the only client"), Lease: 2 * time.Second})
	http.Handle("/parcels", idempotent(once.JSON(201, send)))
	listener, err := net.Listen("tcp", "127.0.0.1:"+os.Getenv("PORT"))
	if err != nil {
		log.Fatal(err)
	}
	log.Print("parcels: ready")
	log.Fatal(http.Serve(listener, nil))
}
