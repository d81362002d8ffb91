package once_test

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"

	"once"
)

type payment struct {
	Order string `json:"order"`
}

func pay(ctx context.Context, in payment) (payment, error) {
	_, err := once.From(ctx).Emit(ctx, "payments", in.Order, "paid", in)
	return in, err
}

// A handler is tested without a server: Memory stands for SQL, pgxonce.Pool or Serve.
func ExampleIdempotent() {
	memory := once.NewMemory(nil)
	idempotent := once.Idempotent(memory, once.Options{Scope: once.OneScope("test")})
	mux := http.NewServeMux()
	mux.Handle("/payments", idempotent(once.JSON(201, pay)))

	for range [2]int{} {
		request := httptest.NewRequest("POST", "/payments", strings.NewReader(`{"order": "o-1"}`))
		request.Header.Set("Idempotency-Key", "k-1")
		recorder := httptest.NewRecorder()
		mux.ServeHTTP(recorder, request)
		fmt.Println(recorder.Code, recorder.Body, recorder.Header()["Idempotent-Replayed"])
	}
	fmt.Println(len(memory.Events()), "event")
	// Output:
	// 201 {"order":"o-1"} []
	// 201 {"order":"o-1"} [true]
	// 1 event
}
