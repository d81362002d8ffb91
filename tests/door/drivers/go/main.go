// Strings, objects and bytes as Go programs send them: pgx, and lib/pq by way of database/sql. See ../../test_drivers.py.
package main

import (
	"bufio"
	"context"
	"database/sql"
	"encoding/base64"
	"fmt"
	"os"
	"strings"

	"github.com/jackc/pgx/v5"
	_ "github.com/lib/pq"
)

type exec func(statement string, arguments ...interface{}) error

func record(exec exec, call, kind, name string, data []byte) error {
	var value interface{} = string(data) // an object: what json.Marshal gave
	cast := ""
	if kind == "bytes" || kind == "cast" {
		value = data
	}
	if kind == "cast" {
		cast = "::bytea"
	}
	headers := os.Getenv("HEADERS")
	switch call {
	case "complete":
		return exec("SELECT once.complete($1, $2, $3, $4"+cast+")", name, 201, headers, value)
	case "emit":
		return exec("SELECT once.emit('drivers', $1, 'made', $2"+cast+", $3)", name, value, headers)
	case "claim":
		return exec("INSERT INTO answers SELECT $1, outcome FROM once.claim('drivers', $2, 'POST', '/', $3"+cast+
			", lease => '1 hour')", name, name, value)
	case "settle":
		return exec("SELECT once.settle($1, 'completed', $2, $3, $4"+cast+", force => true)", name, 201, headers, value)
	}
	return fmt.Errorf("no call %s", call)
}

func withPgx(conn *pgx.Conn, work func(exec) error) error {
	background := context.Background()
	return pgx.BeginFunc(background, conn, func(tx pgx.Tx) error {
		return work(func(statement string, arguments ...interface{}) error {
			_, err := tx.Exec(background, statement, arguments...)
			return err
		})
	})
}

func withPq(db *sql.DB, work func(exec) error) error {
	tx, err := db.Begin()
	if err != nil {
		return err
	}
	defer tx.Rollback()
	err = work(func(statement string, arguments ...interface{}) error {
		_, err := tx.Exec(statement, arguments...)
		return err
	})
	if err == nil {
		err = tx.Commit()
	}
	return err
}

func main() {
	conn, err := pgx.Connect(context.Background(), os.Getenv("DATABASE"))
	if err != nil {
		panic(err)
	}
	db, _ := sql.Open("postgres", os.Getenv("DATABASE"))
	lines := bufio.NewScanner(os.Stdin)
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		fields := strings.Split(lines.Text(), "\t")
		data, _ := base64.StdEncoding.DecodeString(fields[4])
		work := func(exec exec) error { return record(exec, fields[1], fields[2], fields[3], data) }
		if os.Args[1] == "pgx" {
			err = withPgx(conn, work)
		} else {
			err = withPq(db, work)
		}
		if err != nil {
			fmt.Printf("%s\t%s\n", fields[0], strings.ReplaceAll(err.Error(), "\n", " "))
		} else {
			fmt.Printf("%s\tok\n", fields[0])
		}
	}
}
