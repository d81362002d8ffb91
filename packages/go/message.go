package once

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"net/http"
	"regexp"
	"sort"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"
)

// Response is what is recorded and sent.
type Response struct {
	Status int
	Header http.Header
	Body   []byte
}

// Of the connection or of the moment, or made anew by every server: not part of a record.
const notRecorded = " connection keep-alive proxy-authenticate proxy-connection te trailer transfer-encoding upgrade " +
	"content-length date server set-cookie "

// early: sent before any effect; the gate and `once serve` leave the key free.
func (r *Response) early() bool {
	switch r.Status {
	case 401, 403, 407, 421, 425, 429:
		return true
	}
	return false
}

// final: it answers the key for good. Everything else rolls back and leaves the key free.
func (r *Response) final() bool {
	return r.Status >= 200 && r.Status < 500 && !r.early() && r.Status != 408
}

// expires: until when the record is kept.
func expires(at time.Time) [2]string {
	return [2]string{"Idempotency-Expires", at.UTC().Format(http.TimeFormat)}
}

// with has a header of this package's, which is not recorded.
func (r *Response) with(header [2]string) *Response {
	r.Header.Set(header[0], header[1])
	return r
}

// recorded has the headers that a replay repeats, in a stable order.
func (r *Response) recorded() [][2]string {
	pairs := [][2]string{}
	for name, values := range r.Header {
		if strings.Contains(notRecorded, " "+strings.ToLower(name)+" ") {
			continue
		}
		for _, value := range values {
			if !utf8.ValidString(value) { // Latin-1
				runes := make([]rune, len(value))
				for i := range runes {
					runes[i] = rune(value[i])
				}
				value = string(runes)
			}
			pairs = append(pairs, [2]string{name, value})
		}
	}
	sort.SliceStable(pairs, func(i, j int) bool { return pairs[i][0] < pairs[j][0] })
	return pairs
}

func newResponse(status int, pairs [][2]string, body []byte) *Response {
	r := &Response{status, http.Header{}, body}
	for _, pair := range pairs {
		r.Header.Add(pair[0], pair[1])
	}
	return r
}

var replayed = [2]string{"Idempotent-Replayed", "true"}

func (r *Response) send(w http.ResponseWriter) {
	for name, values := range r.Header {
		w.Header()[name] = values
	}
	if r.Status != http.StatusNoContent && r.Status != http.StatusNotModified {
		w.Header().Set("Content-Length", strconv.Itoa(len(r.Body)))
	}
	w.WriteHeader(r.Status)
	w.Write(r.Body)
}

// problems are the gateway's: nginx/ngx_http_once_problem.c, docs/problems.md.
var problems = map[string]struct {
	status              int
	retryable           bool
	kind, title, detail string
}{
	"key-missing": {400, false, "invalid_request_error", "Idempotency key is missing",
		"This operation needs an idempotency key in the header Idempotency-Key. Send a new, unique key with each new operation, " +
			"and the same key with each retry of it."},
	"key-invalid": {400, false, "invalid_request_error", "Idempotency key is invalid",
		"A key is 1 to 255 visible ASCII characters, sent once."},
	"scope-missing": {400, false, "invalid_request_error", "Caller is not known",
		"Idempotency keys belong to a caller, and this request does not say whose it is."},
	"in-flight": {409, true, "idempotency_error", "A request with this idempotency key is in progress",
		"Send the same request again later to get its response."},
	"outcome-unknown": {409, false, "idempotency_error", "The outcome of this operation is not known",
		"An earlier request with this key may have taken effect. It is not run again until its outcome has been settled."},
	"key-reused": {422, false, "idempotency_error", "Idempotency key was used for another request",
		"The first request with this key was different. Send a new key with a new operation."},
	"store-unavailable": {503, true, "api_error", "Idempotency records are not available",
		"Send the same request with the same key again later."},
}

// problem makes the answer; detail "": the usual one. retryAfter 0: it has no such header.
func problem(name, detail string, retryAfter time.Duration) *Response {
	p := problems[name]
	if detail == "" {
		detail = p.detail
	}
	body, _ := toJSON(struct {
		Type      string            `json:"type"`
		Title     string            `json:"title"`
		Status    int               `json:"status"`
		Detail    string            `json:"detail"`
		Retryable bool              `json:"retryable"`
		Error     map[string]string `json:"error"`
	}{"urn:once:problem:" + name, p.title, p.status, detail, p.retryable,
		map[string]string{"type": p.kind, "code": name, "message": detail}})
	r := newResponse(p.status, [][2]string{{"Content-Type", "application/problem+json"}, {"Content-Language", "en"},
		{"Cache-Control", "no-store"}}, body)
	if retryAfter > 0 {
		r.Header.Set("Retry-After", strconv.Itoa(int(math.Ceil(retryAfter.Seconds()))))
	}
	return r
}

func unavailable() *Response { return problem("store-unavailable", "", time.Second) }

// toJSON differs from json.Marshal in that <, > and & stay as they are.
func toJSON(value any) ([]byte, error) {
	var made bytes.Buffer
	encoder := json.NewEncoder(&made)
	encoder.SetEscapeHTML(false)
	err := encoder.Encode(value)
	return bytes.TrimSuffix(made.Bytes(), []byte("\n")), err
}

// toBytes: bytes and text as they are, everything else as JSON.
func toBytes(value any) ([]byte, error) {
	switch value := value.(type) {
	case []byte:
		return value, nil
	case json.RawMessage:
		return value, nil
	case string:
		return []byte(value), nil
	}
	return toJSON(value)
}

// unquote reads "key", with \" and \\ as its only escapes.
func unquote(value string) (string, error) {
	var key strings.Builder
	at := 1
	for ; at < len(value) && value[at] != '"'; at++ {
		if value[at] == '\\' {
			if at++; at == len(value) || value[at] != '"' && value[at] != '\\' {
				return "", errors.New(`the key has a backslash that escapes nothing; inside quotes only \" and \\ are escapes`)
			}
		}
		key.WriteByte(value[at])
	}
	if at >= len(value) {
		return "", errors.New("the key's closing quote is missing; add it")
	}
	switch rest := strings.Trim(value[at+1:], " \t"); {
	case rest == "":
		return key.String(), nil
	case rest[0] == ',':
		return "", errors.New("the key header has several keys, separated by commas; send exactly one")
	case rest[0] == ';':
		return "", errors.New("the key has parameters after its closing quote; send the key alone")
	}
	return "", errors.New(`there is text after the key's closing quote; write a quote inside a key as \"`)
}

// parseKey gives the key of all Idempotency-Key headers: "k" and k are the same. The rules are those of lib/core/key.c.
func parseKey(values []string) (key string, err error) {
	if len(values) > 1 {
		return "", fmt.Errorf("the key header was sent %d times; send it once", len(values))
	}
	key = strings.Trim(values[0], " \t")
	if strings.HasPrefix(key, `"`) {
		if key, err = unquote(key); err != nil {
			return "", err
		}
	} else if strings.Contains(key, ",") {
		return "", errors.New("the key has a comma, as if several were joined; send exactly one, in double quotes if the comma " +
			"belongs to it")
	}
	for i := 0; i < len(key); i++ {
		if key[i] >= 0x80 {
			return "", errors.New("the key has a byte that is not ASCII; use visible ASCII characters only")
		}
		if key[i] < 0x20 || key[i] == 0x7f {
			return "", errors.New("the key has a control character; use visible ASCII characters only")
		}
	}
	if key == "" {
		return "", errors.New("the key is empty; send 1 to 255 characters")
	}
	if len(key) > 255 {
		return "", errors.New("the key is longer than 255 bytes; send a shorter one")
	}
	return key, nil
}

var isClaim = regexp.MustCompile(`^[A-Za-z0-9_-]{70}$`).MatchString
