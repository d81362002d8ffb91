// Package pgxonce lets package once work in transactions of pgx. It is a module of its own: only programs that use pgx depend on
// it.
package pgxonce

import (
	"context"
	"errors"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"once"
)

// Pool keeps the records in the schema `once` of the database of pool.
func Pool(pool *pgxpool.Pool) once.Store {
	return once.Postgres(func(ctx context.Context) (once.Session, error) {
		conn, err := pool.Acquire(ctx)
		return &session{conn: conn}, err
	})
}

// Tx is the transaction of the handler. After a checkpoint it is another one.
func Tx(ctx context.Context) pgx.Tx {
	tx, ok := once.From(ctx).Tx().(pgx.Tx)
	if !ok {
		panic("pgxonce: no transaction of pgx; the records are not those of pgxonce.Pool")
	}
	return handlers{tx}
}

// handlers is the transaction without its end: an effect that is committed without its record could be repeated.
type handlers struct{ pgx.Tx }

var errEnd = errors.New("pgxonce: a handler does not end its transaction; return an error to roll back")

func (handlers) Commit(context.Context) error   { return errEnd }
func (handlers) Rollback(context.Context) error { return errEnd }

// Bind is for a transaction without a request, such as that of a consumer.
func Bind(tx pgx.Tx) *once.Bound { return once.BindSession(&session{tx: tx}) }

type session struct {
	conn *pgxpool.Conn
	tx   pgx.Tx
}

func (s *session) Begin(ctx context.Context) (err error) {
	s.tx, err = s.conn.Begin(ctx)
	return err
}

func (s *session) Query(ctx context.Context, statement string, args []any, into ...any) (found bool, err error) {
	if s.tx == nil {
		return false, pgx.ErrTxClosed
	}
	rows, err := s.tx.Query(ctx, statement, args...)
	if err != nil {
		return false, err
	}
	defer rows.Close()
	if found = rows.Next(); found && len(into) > 0 {
		err = rows.Scan(into...)
	}
	rows.Close()
	if err == nil {
		err = rows.Err()
	}
	return found, err
}

func (s *session) Commit(ctx context.Context) error {
	tx := s.tx
	s.tx = nil
	return tx.Commit(ctx)
}

func (s *session) Rollback(ctx context.Context) {
	if s.tx != nil {
		s.tx.Rollback(ctx)
		s.tx = nil
	}
}

func (s *session) Lost(ctx context.Context) bool {
	return s.conn.Conn().IsClosed() || s.conn.Ping(ctx) != nil
}
func (s *session) Close()  { s.conn.Release() }
func (s *session) Tx() any { return s.tx }
