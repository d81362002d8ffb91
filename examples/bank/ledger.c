#include "ledger.h"

#include <string.h>

db_end_t ledger_lock(db_t *db, const char *one, const char *other)
{
    /* Two statements: nothing promises an order within one. */
    static const char lock[] = "SELECT once.lock('account:' || $1)";
    int swap = strcmp(one, other) > 0;
    db_end_t end = db_run(db, lock, 1, swap ? &other : &one, NULL);

    if (end == DB_OK && strcmp(one, other) != 0) {
        end = db_run(db, lock, 1, swap ? &one : &other, NULL);
    }
    return end;
}

db_end_t ledger_move(db_t *db, const char *cause, const char *from, const char *to,
                     const char *amount)
{
    static const char move[] =
        "INSERT INTO bank.ledger (account, number, id, amount, balance) "
        "SELECT part.account, coalesce(last.number, 0) + 1, $1 || ':' || part.name, part.amount, "
        "       coalesce(last.balance, 0) + part.amount "
        "FROM (VALUES ('debit', $2, -($4::numeric)), ('credit', $3, $4::numeric)) "
        "     AS part (name, account, amount) "
        "LEFT JOIN LATERAL (SELECT l.number, l.balance FROM bank.ledger l "
        "                   WHERE l.account = part.account ORDER BY l.number DESC LIMIT 1) AS last "
        "     ON true";
    const char *values[] = {cause, from, to, amount};

    return db_run(db, move, 4, values, NULL);
}
