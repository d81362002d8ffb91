#include "store/postgres/flight.h"

#include <string.h>

#include "base/bytes.h"

#define MASK (ONCE__FLIGHT_SIZE - 1)

/* Record ids are keyed hashes: their first bytes will do. */
static unsigned probe(const once__flight_t *flight, const uint8_t *id)
{
    unsigned i = once__get32(id) & MASK;

    while (flight->places[i] != NULL && memcmp(flight->places[i]->id, id, ONCE_ID_SIZE) != 0) {
        i = (i + 1) & MASK;
    }
    return i;
}

int once__flight_start(once__flight_t *flight, once__op_t *op)
{
    unsigned place = probe(flight, op->id);

    if (flight->places[place] != NULL) {
        return -1;
    }
    flight->places[place] = op;
    return 0;
}

once__op_t *once__flight_find(const once__flight_t *flight, const uint8_t *id)
{
    return flight->places[probe(flight, id)];
}

/* Moves later ones of the same run back, so that no probe ends too early. */
void once__flight_land(once__flight_t *flight, const once__op_t *op)
{
    unsigned hole = probe(flight, op->id);

    if (flight->places[hole] != op) {
        return; /* one that travels alone */
    }
    for (unsigned i = (hole + 1) & MASK; flight->places[i] != NULL; i = (i + 1) & MASK) {
        unsigned want = once__get32(flight->places[i]->id) & MASK;
        if (((i - want) & MASK) >= ((i - hole) & MASK)) {
            flight->places[hole] = flight->places[i];
            hole = i;
        }
    }
    flight->places[hole] = NULL;
}
