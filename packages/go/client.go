package once

import (
	"bytes"
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	mathrand "math/rand"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"time"
)

// ErrIntentChanged: the journal has another request under this name: another method, URL or body.
var ErrIntentChanged = errors.New("once: another request has this name in the journal; use another name for another intent")

// ErrIntentExpired: the key of this name may be forgotten by now: sending it again could take effect a second time.
var ErrIntentExpired = errors.New("once: first sent too long ago; find out what became of it before it gets a new name")

// Redirected is the error for an answer that is a redirect. An http.Client would follow it: 307 and 308 send the write, its key and
// its headers to another address; the others ask that with GET, and its answer would pass for the answer to the write.
type Redirected struct{ Response *http.Response } // its body can be read

func (r *Redirected) Error() string {
	return fmt.Sprintf("once: %d to %q is not followed: a write is for one URL", r.Response.StatusCode,
		r.Response.Header.Get("Location"))
}

const (
	intentHeader  = "Once-Intent"
	problemPrefix = "urn:once:problem:"
	month         = 30 * 24 * time.Hour
)

// Transport is the client's side: an http.RoundTripper that gives each POST and PATCH an Idempotency-Key unless it has one, and
// repeats it with that, its bytes unchanged, until the answer says that repeating is of no use. What cannot be sent within the
// deadline ends as it would without this: with the last answer, or the last error. Answers are read whole. A redirect is the error
// *Redirected, whatever CheckRedirect says.
//
//	client := &http.Client{Transport: &once.Transport{}}
type Transport struct {
	Next     http.RoundTripper // nil: http.DefaultTransport
	Deadline time.Duration     // from the first attempt to the last; 0: a minute
	Pause    time.Duration     // the pause is drawn from 0 to Pause * 2^n, at most PauseMax; 0: 200 ms and 20 s
	PauseMax time.Duration
	Methods  []string // which get a key; nil: POST and PATCH
	Journal  *Journal // where the header Once-Intent, which is not sent, finds its key; nil: nowhere

	draw func(most time.Duration) time.Duration // for tests
}

// Problem is the name of the gateway's problem in an answer, such as outcome-unknown; "": it is none. Its body can be read again.
func Problem(response *http.Response) string {
	body, err := io.ReadAll(response.Body)
	response.Body.Close()
	response.Body = io.NopCloser(bytes.NewReader(body))
	found := readProblem(response, body)
	if err != nil || found == nil {
		return ""
	}
	return strings.TrimPrefix(found.Type, problemPrefix)
}

type problemBody struct {
	Type      string `json:"type"`
	Retryable bool   `json:"retryable"`
}

func readProblem(response *http.Response, body []byte) *problemBody {
	var found problemBody
	if response.StatusCode < 400 || !strings.HasPrefix(response.Header.Get("Content-Type"), "application/problem+json") ||
		json.Unmarshal(body, &found) != nil || !strings.HasPrefix(found.Type, problemPrefix) {
		return nil
	}
	return &found
}

// RoundTrip sends the request, perhaps several times.
func (t *Transport) RoundTrip(request *http.Request) (*http.Response, error) {
	next := t.Next
	if next == nil {
		next = http.DefaultTransport
	}
	if !t.concerns(request) {
		return next.RoundTrip(request)
	}
	body, err := readBody(request)
	if err != nil {
		return nil, err
	}
	name := request.Header.Get(intentHeader)
	key, err := t.keyOf(request, name, body)
	if err != nil {
		return nil, err
	}
	until := time.Now().Add(orElse(t.Deadline, time.Minute))
	var expires time.Time // the earliest that an answer has told; zero: none has
	for attempt := 0; ; attempt++ {
		var wait time.Duration
		response, err := next.RoundTrip(prepare(request, key, body))
		if err == nil {
			err = keepBody(response)
		}
		if err == nil {
			again, least := t.judge(name, response, &expires)
			if !again {
				return unlessRedirected(response)
			}
			wait = least
		}
		wait += t.pause(attempt)
		next := time.Now().Add(wait)
		if next.After(until) || !expires.IsZero() && !next.Before(expires) || !sleep(request.Context(), wait) {
			if err == nil {
				return response, nil
			}
			return nil, err
		}
	}
}

func unlessRedirected(response *http.Response) (*http.Response, error) {
	if response.StatusCode/100 == 3 && response.StatusCode != http.StatusNotModified {
		return nil, &Redirected{response}
	}
	return response, nil
}

func orElse(given, usual time.Duration) time.Duration {
	if given == 0 {
		return usual
	}
	return given
}

func (t *Transport) concerns(request *http.Request) bool {
	methods := t.Methods
	if methods == nil {
		methods = []string{http.MethodPost, http.MethodPatch}
	}
	for _, method := range methods {
		if request.Method == method {
			return true
		}
	}
	return request.Header.Get("Idempotency-Key") != "" || request.Header.Get(intentHeader) != ""
}

func readBody(request *http.Request) ([]byte, error) {
	if request.Body == nil {
		return nil, nil
	}
	defer request.Body.Close()
	return io.ReadAll(request.Body)
}

func (t *Transport) keyOf(request *http.Request, name string, body []byte) (string, error) {
	key := request.Header.Get("Idempotency-Key")
	if key == "" {
		var random [16]byte
		if _, err := rand.Read(random[:]); err != nil {
			return "", err
		}
		random[6], random[8] = random[6]&0x0f|0x40, random[8]&0x3f|0x80
		key = fmt.Sprintf("%x-%x-%x-%x-%x", random[:4], random[4:6], random[6:8], random[8:10], random[10:])
	}
	if name == "" {
		return key, nil
	}
	if t.Journal == nil {
		return "", errors.New("once: " + intentHeader + " needs a Journal")
	}
	hash := sha256.New()
	fmt.Fprintf(hash, "%s\x00%s\x00%s", request.Method, request.URL, body)
	return t.Journal.key(name, hex.EncodeToString(hash.Sum(nil)), key)
}

// prepare makes the request of one attempt: a RoundTripper must not change the one it was given.
func prepare(request *http.Request, key string, body []byte) *http.Request {
	made := request.Clone(request.Context())
	made.Header.Del(intentHeader)
	made.Header.Set("Idempotency-Key", key)
	if request.Body != nil {
		made.Body, made.ContentLength, made.TransferEncoding = io.NopCloser(bytes.NewReader(body)), int64(len(body)), nil
	}
	return made
}

// keepBody reads the answer: one that is cut off is an answer that was lost.
func keepBody(response *http.Response) error {
	body, err := io.ReadAll(response.Body)
	response.Body.Close()
	response.Body = io.NopCloser(bytes.NewReader(body))
	return err
}

// judge says whether to send it again, and how long to wait at least.
func (t *Transport) judge(name string, response *http.Response, expires *time.Time) (bool, time.Duration) {
	if told, wrong := http.ParseTime(response.Header.Get("Idempotency-Expires")); wrong == nil {
		if expires.IsZero() || told.Before(*expires) {
			*expires = told
		}
		if name != "" {
			_ = t.Journal.ended(name, *expires) // the answer is there; without this the journal is stricter
		}
	}
	if response.Header.Get("Idempotent-Replayed") == "true" {
		return false, 0
	}
	body, _ := io.ReadAll(response.Body) // from memory
	response.Body = io.NopCloser(bytes.NewReader(body))
	after := response.Header.Get("Retry-After")
	again := false
	if found := readProblem(response, body); found != nil {
		again = found.Retryable
	} else {
		switch response.StatusCode {
		case 408, 425, 429, 500, 502, 503, 504:
			again = true
		case http.StatusConflict:
			again = after != ""
		}
	}
	if seconds, err := strconv.ParseUint(after, 10, 31); err == nil {
		return again, time.Duration(seconds) * time.Second
	}
	if date, err := http.ParseTime(after); err == nil && time.Until(date) > 0 {
		return again, time.Until(date)
	}
	return again, 0
}

// pause is full jitter.
func (t *Transport) pause(attempt int) time.Duration {
	most := orElse(t.PauseMax, 20*time.Second)
	if bound := orElse(t.Pause, 200*time.Millisecond); attempt < 20 && bound<<attempt < most {
		most = bound << attempt
	}
	if t.draw != nil {
		return t.draw(most)
	}
	return time.Duration(mathrand.Int63n(int64(most) + 1))
}

func sleep(ctx context.Context, wait time.Duration) bool {
	timer := time.NewTimer(wait)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-ctx.Done():
		return false
	}
}

// Journal keeps the keys of named intents in a directory, a file for each, which processes may share: synced before the first byte
// is sent, so that a process that starts again goes on with the same key. Nothing of a request is in it but its hash.
type Journal struct {
	directory string
	keep      time.Duration
}

type intent struct {
	Version int      `json:"version"`
	Request string   `json:"request"`
	Key     string   `json:"key"`
	Created float64  `json:"created"`
	Expires *float64 `json:"expires"`
}

var own = regexp.MustCompile(`^[0-9a-f]{64}\.(json|.+\.new)$`) // what a journal calls its files

// OpenJournal makes the directory, and removes intents that are a month too old; other files in it are left alone. keep is how long
// after its first attempt an intent may be sent again if no answer has said for how long the key is remembered; 0: a day.
func OpenJournal(directory string, keep time.Duration) (*Journal, error) {
	j := &Journal{directory, orElse(keep, 24*time.Hour)}
	if err := os.MkdirAll(directory, 0o700); err != nil {
		return nil, err
	}
	entries, err := os.ReadDir(directory)
	for _, entry := range entries {
		path := filepath.Join(directory, entry.Name())
		info, err := entry.Info()
		if err != nil || !own.MatchString(entry.Name()) || time.Since(info.ModTime()) < j.keep+month {
			continue
		}
		found, err := readIntent(path)
		if errors.Is(err, os.ErrNotExist) || err == nil && found.Expires != nil && time.Since(fromSeconds(*found.Expires)) < month {
			continue
		}
		os.Remove(path)
	}
	return j, err
}

func seconds(at time.Time) float64         { return float64(at.UnixMilli()) / 1000 }
func fromSeconds(number float64) time.Time { return time.UnixMilli(int64(number * 1000)) }

func readIntent(path string) (*intent, error) {
	var found intent
	text, err := os.ReadFile(path)
	if err == nil {
		err = json.Unmarshal(text, &found)
	}
	return &found, err
}

func (j *Journal) path(name string) string {
	hash := sha256.Sum256([]byte(name))
	return filepath.Join(j.directory, hex.EncodeToString(hash[:])+".json")
}

func (j *Journal) key(name, request, key string) (string, error) {
	made := &intent{1, request, key, seconds(time.Now()), nil}
	err := j.put(name, made, os.Link)
	if errors.Is(err, os.ErrExist) {
		made, err = readIntent(j.path(name))
	}
	if err != nil {
		return "", err
	}
	if made.Request != request {
		return "", fmt.Errorf("%w: %q", ErrIntentChanged, name)
	}
	until := fromSeconds(made.Created).Add(j.keep)
	if made.Expires != nil {
		until = fromSeconds(*made.Expires)
	}
	if time.Now().After(until) {
		return "", fmt.Errorf("%w: %q", ErrIntentExpired, name)
	}
	return made.Key, nil
}

func (j *Journal) ended(name string, expires time.Time) error {
	found, err := readIntent(j.path(name))
	if err != nil {
		return err
	}
	at := seconds(expires)
	found.Expires = &at
	return j.put(name, found, os.Rename)
}

// put writes it whole, or not at all; publish is os.Link, which keeps what is there, or os.Rename.
func (j *Journal) put(name string, made *intent, publish func(from, to string) error) error {
	file, err := os.CreateTemp(j.directory, strings.TrimSuffix(filepath.Base(j.path(name)), "json")+"*.new") // mode 0600
	if err != nil {
		return err
	}
	defer os.Remove(file.Name())
	err = json.NewEncoder(file).Encode(made)
	if err == nil {
		err = file.Sync()
	}
	if closing := file.Close(); err == nil {
		err = closing
	}
	if err == nil {
		err = publish(file.Name(), j.path(name))
	}
	directory, wrong := os.Open(j.directory)
	if wrong != nil {
		return wrong
	}
	defer directory.Close()
	if syncing := directory.Sync(); err == nil {
		err = syncing
	}
	return err
}
