package once

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"reflect"
	"sync"
)

// Event is one that a handler has emitted.
type Event struct {
	Topic, Key, Type string
	Payload          []byte
}

// Memory is a Store for tests of handlers. It needs no server: what transactions commit is in memory.
type Memory struct {
	tx       any
	mu       sync.Mutex
	events   []Event
	claims   map[string]string         // the record of each claim
	requests map[string]string         // by record: what it was claimed for
	holders  map[string]*memorySession // by record: the open transaction that has it
	answers  map[string]row            // by record
	steps    map[string][2]string      // by record: name and state of the last checkpoint
	accepted map[[2]string]bool
}

// NewMemory makes an empty one. tx is what handlers find as their transaction, such as a *sql.Tx; it may be nil.
func NewMemory(tx any) *Memory {
	return &Memory{tx: tx, claims: map[string]string{}, requests: map[string]string{}, holders: map[string]*memorySession{},
		answers: map[string]row{}, steps: map[string][2]string{}, accepted: map[[2]string]bool{}}
}

// Events are those of committed transactions, in their order.
func (m *Memory) Events() []Event {
	m.mu.Lock()
	defer m.mu.Unlock()
	return append([]Event(nil), m.events...)
}

// Bind is for tests of consumers: what it calls is committed at once.
func (m *Memory) Bind() *Bound { return BindSession(&memorySession{Memory: m, commits: true}) }

func (m *Memory) open(ctx context.Context, op *Op) (mode, error) {
	return Postgres(func(context.Context) (Session, error) { return &memorySession{Memory: m}, nil }).open(ctx, op)
}

// memorySession answers the statements of this package, and no others.
type memorySession struct {
	*Memory
	changes []func() // what a commit does
	commits bool     // after each call
}

// refused is PostgreSQL's refusal of a claim.
type refused string

func (r refused) Error() string    { return "refused: " + string(r) }
func (r refused) SQLState() string { return string(r) }

func (s *memorySession) Begin(context.Context) error { return nil }
func (s *memorySession) Lost(context.Context) bool   { return false }
func (s *memorySession) Close()                      {}
func (s *memorySession) Tx() any                     { return s.tx }

func (s *memorySession) Commit(context.Context) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, change := range s.changes {
		change()
	}
	s.end()
	return nil
}

func (s *memorySession) Rollback(context.Context) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.end()
}

func (s *memorySession) end() {
	s.changes = nil
	for id, holder := range s.holders {
		if holder == s {
			delete(s.holders, id)
		}
	}
}

func (s *memorySession) Query(ctx context.Context, statement string, args []any, into ...any) (bool, error) {
	s.mu.Lock()
	values, err := s.answer(statement, args)
	s.mu.Unlock()
	if err == nil && s.commits {
		err = s.Commit(ctx)
	}
	for i, value := range values {
		reflect.ValueOf(into[i]).Elem().Set(reflect.ValueOf(value))
	}
	return values != nil, err
}

func (s *memorySession) answer(statement string, args []any) ([]any, error) {
	first, _ := args[0].(string)
	id := s.claims[first] // if it is a claim
	change := func(change func()) { s.changes = append(s.changes, change) }
	switch statement {
	case qClaim:
		return s.grant(fmt.Sprintf("%q %q", args[0], args[1]), fmt.Sprintf("%q", args[2:5]), args[8].(string)), nil
	case qRenew:
		if id == "" { // the gate's
			id = first
			s.claims[id] = id
		}
		if s.answers[id].status != 0 {
			return nil, refused("ON002")
		} else if holder := s.holders[id]; holder != nil && holder != s {
			return nil, refused("ON001")
		}
		s.holders[id] = s
	case qRecorded:
		if found := s.answers[id]; found.status != 0 {
			return found.values(), nil
		}
	case qComplete:
		made := row{status: args[1].(int), headers: args[2].(string), stored: "plain", body: args[3].([]byte)}
		change(func() { s.answers[id] = made })
	case qEmit:
		made := Event{first, args[1].(string), args[2].(string), args[3].([]byte)}
		change(func() { s.events = append(s.events, made) })
		return []any{hash(made, args[5], len(s.events), len(s.changes))[:32]}, nil
	case qAccept:
		message := [2]string{first, args[1].(string)}
		change(func() { s.accepted[message] = true })
		return []any{!s.accepted[message]}, nil
	case qDerive:
		return []any{"d2-" + hash(id, args[1])[:52]}, nil
	case qCheckpoint:
		step := [2]string{args[1].(string), args[2].(string)}
		change(func() { s.steps[id] = step })
	case qResume:
		if step, found := s.steps[id]; found {
			return []any{step[0], step[1]}, nil
		}
	}
	return nil, nil
}

func (s *memorySession) grant(id, request, claim string) []any {
	known, found := s.requests[id]
	outcome, answer := "run", s.answers[id]
	if holder := s.holders[id]; holder != nil && holder != s {
		outcome = "busy"
	} else if found && known != request {
		outcome = "mismatch"
	} else if answer.status != 0 {
		outcome = "replay"
	} else {
		s.holders[id], s.claims[claim] = s, id
		s.changes = append(s.changes, func() { s.requests[id] = request })
	}
	return append([]any{outcome, claim, 1.0}, answer.values()...)
}

func (r row) values() []any { return []any{r.status, r.headers, r.body, r.stored, r.expires} }

func hash(parts ...any) string {
	sum := sha256.Sum256([]byte(fmt.Sprintf("%q", parts)))
	return hex.EncodeToString(sum[:])
}
