#include "pg/sqlstate.h"

#include <stddef.h>
#include <string.h>

/* The first that fits counts: codes before their classes. */
static const struct {
    const char *prefix;
    once__pg_fault_t fault;
} faults[] = {
    {"0A000", ONCE__PG_FAULT_SESSION},  /* the result of a prepared statement has changed */
    {"26000", ONCE__PG_FAULT_SESSION},  /* no such prepared statement */
    {"42P05", ONCE__PG_FAULT_SESSION},  /* it is prepared already */
    {"42501", ONCE__PG_FAULT_RIGHTS},   /* insufficient privilege */
    {"42", ONCE__PG_FAULT_SETUP},       /* no such function, table, column, ... */
    {"3F", ONCE__PG_FAULT_SETUP},       /* no such schema */
    {"22", ONCE__PG_FAULT_VALUE},       /* data exception */
    {"23", ONCE__PG_FAULT_CONSTRAINT},  /* integrity constraint */
    {"54", ONCE__PG_FAULT_CONSTRAINT},  /* program limit */
    {"40001", ONCE__PG_FAULT_CONFLICT}, /* serialization */
    {"40P01", ONCE__PG_FAULT_CONFLICT}, /* deadlock */
    {"55P03", ONCE__PG_FAULT_CONFLICT}, /* lock not available */
    {"53100", ONCE__PG_FAULT_FULL},     /* disk full */
    {"53200", ONCE__PG_FAULT_LOCKS},    /* out of (shared) memory */
    {"25006", ONCE__PG_FAULT_GONE},     /* read-only */
    {"25P03", ONCE__PG_FAULT_GONE},     /* idle in transaction for too long */
    {"25P04", ONCE__PG_FAULT_GONE},     /* the transaction took too long */
    {"08", ONCE__PG_FAULT_GONE},        /* connection exception */
    {"57P", ONCE__PG_FAULT_GONE},       /* shutdown, crash, starting up */
};

once__pg_fault_t once__pg_fault(const char *sqlstate)
{
    for (size_t i = 0; i < sizeof(faults) / sizeof(faults[0]); i++) {
        if (strncmp(sqlstate, faults[i].prefix, strlen(faults[i].prefix)) == 0) {
            return faults[i].fault;
        }
    }
    return ONCE__PG_FAULT_OTHER;
}

int once__pg_fault_is_setup(once__pg_fault_t fault)
{
    return fault == ONCE__PG_FAULT_SETUP || fault == ONCE__PG_FAULT_RIGHTS;
}
