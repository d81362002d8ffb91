#include "ledger.h"

#include <stdio.h>
#include <string.h>

#include "door.h"
#include "fields.h"

static db_end_t lock(db_t *db, const char *account)
{
    char natural_key[FIELDS_ID_SIZE + 16];

    snprintf(natural_key, sizeof(natural_key), "account:%s", account);
    return door_lock(db, natural_key);
}

db_end_t ledger_lock(db_t *db, const char *one, const char *other)
{
    int order = strcmp(one, other);
    db_end_t end = lock(db, order <= 0 ? one : other);

    if (end == DB_OK && order != 0) {
        end = lock(db, order <= 0 ? other : one);
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
