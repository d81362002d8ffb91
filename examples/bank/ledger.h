/*
 * The ledger: what moves between two accounts is two entries, written together. An account is locked by its name before its balance
 * is looked at, so that nothing gets between looking and writing.
 */
#ifndef EXAMPLES_BANK_LEDGER_H
#define EXAMPLES_BANK_LEDGER_H

#include "db.h"

/*
 * One at a time for each of the two accounts until the transaction ends; always in the same order, so that transfers in both
 * directions cannot wait for each other. The order is that of the names, whichever pays.
 */
db_end_t ledger_lock(db_t *db, const char *one, const char *other);

/*
 * Moves `amount` between two accounts that are locked. `cause` begins the ids of the entries: the same cause cannot be entered
 * twice.
 */
db_end_t ledger_move(db_t *db, const char *cause, const char *from, const char *to,
                     const char *amount);

#endif
