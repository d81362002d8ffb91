/*
 * An operator (or a probe): looks at what is stuck, finds out what became of it, and settles it, naming the claim it looked
 * at. It tells the truth: "completed" when the effect happened, "failed" when it has not and no longer can, and nothing when
 * it cannot know yet. It repeats itself when it got no reply, and sometimes without need, long after. It also rotates secrets
 * and now and then removes a record that has ended.
 */
#ifndef SIMULATION_OPERATOR_H
#define SIMULATION_OPERATOR_H

#include "ledger.h"

void operator_start(world_t *world);

/* For scripts: looks once; settles again what it settled last. */
void operator_look(world_t *world, int force);
void operator_look_again(world_t *world);

/* Its program is killed, and started again when the machine is up. */
void operator_crash(world_t *world);

#endif
