package main

import (
	"context"
	"database/sql"
	"log"
	"os"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	_ "github.com/jackc/pgx/v5/stdlib" // the driver "pgx"
	_ "github.com/lib/pq"              // the driver "postgres"

	"once"
	"once/pgxonce"
)

func check(err error) {
	if err != nil {
		log.Fatal(err)
	}
}

func seconds(text string) time.Duration {
	lease, err := time.ParseDuration(text + "s")
	check(err)
	return lease
}

// withPgx: pgx, with its own transactions or with `once serve`.
type withPgx struct {
	pool    *pgxpool.Pool
	isStore bool
}

func openPgx(database string, isStore bool) business {
	config, err := pgxpool.ParseConfig(database)
	check(err)
	config.MaxConns = 20
	config.BeforeAcquire = func(ctx context.Context, conn *pgx.Conn) bool { return conn.Ping(ctx) == nil }
	config.ConnConfig.DefaultQueryExecMode = pgx.QueryExecModeExec // PgBouncer: no prepared statements
	pool, err := pgxpool.NewWithConfig(context.Background(), config)
	check(err)
	return withPgx{pool, isStore}
}

func (b withPgx) store() once.Store {
	if b.isStore {
		return once.Serve(os.Getenv("ONCE_SERVE"), os.Getenv("ONCE_TOKEN"))
	}
	return pgxonce.Pool(b.pool)
}

func (b withPgx) row(ctx context.Context, statement string, args []any, into ...any) error {
	if b.isStore {
		return b.pool.QueryRow(ctx, statement, args...).Scan(into...)
	}
	return pgxonce.Tx(ctx).QueryRow(ctx, statement, args...).Scan(into...)
}

func (b withPgx) accept(ctx context.Context, id string) (isNew bool, err error) {
	err = pgx.BeginFunc(ctx, b.pool, func(tx pgx.Tx) error {
		isNew, err = pgxonce.Bind(tx).Accept(ctx, "ledger", id)
		return err
	})
	return isNew, err
}

// withSQL: database/sql, with lib/pq or with pgx below it.
type withSQL struct{ db *sql.DB }

func openSQL(driver, database string) business {
	if driver == "pgx-stdlib" {
		driver, database = "pgx", database+"&default_query_exec_mode=exec"
	}
	db, err := sql.Open(driver, database)
	check(err)
	if driver == "pgx" { // notices only after a second that a connection is lost, and /events does not repeat
		db.SetMaxIdleConns(-1)
	}
	return withSQL{db}
}

func (b withSQL) store() once.Store { return once.SQL(b.db) }

func (b withSQL) row(ctx context.Context, statement string, args []any, into ...any) error {
	return once.Tx(ctx).QueryRowContext(ctx, statement, args...).Scan(into...)
}

func (b withSQL) accept(ctx context.Context, id string) (bool, error) {
	tx, err := b.db.BeginTx(ctx, nil)
	if err != nil {
		return false, err
	}
	defer tx.Rollback()
	isNew, err := once.Bind(tx).Accept(ctx, "ledger", id)
	if err == nil {
		err = tx.Commit()
	}
	return isNew, err
}
