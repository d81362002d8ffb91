package once

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"log"
	"net/http"
)

// Error is what a handler returns to undo its statements and to answer with a status: 4xx answers the key for good.
type Error struct {
	Status int
	Value  any // sent as JSON; nil: the text of the status
	Err    error
}

// ErrNothingDone is returned, or wrapped, by a handler that has done nothing and may be asked again: the key is free. The answer is
// 503, or that of the *Error that wraps it: &Error{Status: 403, Err: ErrNothingDone}. With a transaction every error that is no
// *Error leaves the key free; with Serve it leaves the outcome unknown, and so does an *Error with a status such as 401 or 429.
var ErrNothingDone = errors.New("nothing was done; try again")

func (e *Error) Error() string {
	if e.Err != nil {
		return e.Err.Error()
	}
	return http.StatusText(e.Status)
}

func (e *Error) Unwrap() error { return e.Err }

func (e *Error) response() *Response {
	value := e.Value
	if value == nil {
		value = map[string]string{"error": http.StatusText(e.Status)}
	}
	body, err := toJSON(value)
	if err != nil {
		return &Response{500, http.Header{}, nil}
	}
	return newResponse(e.Status, [][2]string{{"Content-Type", "application/json"}}, body)
}

// HandlerFunc is a handler that returns its errors: *Error as it says, everything else is answered with 500.
type HandlerFunc func(http.ResponseWriter, *http.Request) error

func (f HandlerFunc) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	err := f(w, r)
	if err == nil {
		return
	}
	logf := log.Printf
	if op, _ := r.Context().Value(contextKey{}).(*Op); op != nil {
		op.Fail(err)
		logf = op.options.Logf
	}
	var known *Error
	if !errors.As(err, &known) && errors.Is(err, ErrNothingDone) {
		known = &Error{Status: 503}
	} else if known == nil {
		logf("%s %s: %v", r.Method, r.URL.Path, err)
		known = &Error{Status: 500}
	}
	known.response().send(w)
}

// JSON makes a handler of a function: the request's body in, the response's body out.
func JSON[In, Out any](status int, handle func(context.Context, In) (Out, error)) http.Handler {
	return HandlerFunc(func(w http.ResponseWriter, r *http.Request) error {
		var in In
		if err := ReadJSON(r, &in); err != nil {
			return err
		}
		out, err := handle(r.Context(), in)
		if err != nil {
			return err
		}
		return WriteJSON(w, status, out)
	})
}

// ReadJSON reads the body of a request. Its error answers with 400.
func ReadJSON(r *http.Request, into any) error {
	body, err := io.ReadAll(r.Body)
	if err == nil {
		err = json.Unmarshal(body, into)
	}
	if err != nil {
		return &Error{400, map[string]string{"error": "the body is not the JSON that is needed: " + err.Error()}, err}
	}
	return nil
}

// WriteJSON answers with a value.
func WriteJSON(w http.ResponseWriter, status int, value any) error {
	body, err := toJSON(value)
	if err != nil {
		return err
	}
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_, err = w.Write(body)
	return err
}
