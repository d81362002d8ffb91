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

func record(exec exec, id, kind, claim string, data []byte) error {
	var value interface{} = string(data) // an object: what json.Marshal gave
	cast := ""
	if kind == "bytes" || kind == "cast" {
		value = data
	}
	if kind == "cast" {
		cast = "::bytea"
	}
	headers := os.Getenv("HEADERS")
	err := exec("SELECT once.complete($1, $2, $3, $4"+cast+")", claim, 201, headers, value)
	if err == nil {
		err = exec("SELECT once.emit('drivers', $1, 'made', $2"+cast+", $3)", id, value, headers)
	}
	return err
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
		data, _ := base64.StdEncoding.DecodeString(fields[3])
		work := func(exec exec) error { return record(exec, fields[0], fields[1], fields[2], data) }
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
