/*
 * What an SQLSTATE of the server means for the sender of the statement.
 */
#ifndef ONCE_PG_SQLSTATE_H
#define ONCE_PG_SQLSTATE_H

typedef enum once__pg_fault {
    ONCE__PG_FAULT_OTHER,
    ONCE__PG_FAULT_VALUE,      /* a value is not accepted, and will not be next time */
    ONCE__PG_FAULT_CONSTRAINT, /* nor will this: a constraint, or a limit of the server's */
    ONCE__PG_FAULT_SETUP,      /* the schema is missing or older, or this user may not use it */
    ONCE__PG_FAULT_RIGHTS,     /* of these, the user */
    ONCE__PG_FAULT_SESSION,    /* the session has not what the statement relies on */
    ONCE__PG_FAULT_CONFLICT,   /* with another transaction: try again */
    ONCE__PG_FAULT_FULL,       /* the disk */
    ONCE__PG_FAULT_LOCKS,      /* the lock table */
    ONCE__PG_FAULT_GONE, /* this server takes no writes, or the connection is over: look for another */
} once__pg_fault_t;

/* Five characters, or "" where the server gave none. */
once__pg_fault_t once__pg_fault(const char *sqlstate);

/* Is it about the set-up, so that waiting does not help? */
int once__pg_fault_is_setup(once__pg_fault_t fault);

#endif
