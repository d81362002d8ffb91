/*
 * What happens to processes, the store and its clock, whatever uses them: crashes, standing still, graceful ends, outages, and
 * clocks that are set back or forth. Until the schedule turns quiet.
 */
#ifndef SIMULATION_TROUBLE_H
#define SIMULATION_TROUBLE_H

#include "world.h"

void trouble_start(world_t *world);

/* It is over: everybody goes on, the store is there, and its clock is put right (never back). */
void trouble_end(world_t *world);

#endif
