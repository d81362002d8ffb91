/*
 * The schedules that broke earlier versions of the rules, by the names under which they were found. Each is a script; each
 * names the defects that it must notice when they are put back.
 */
#ifndef SIMULATION_NAMED_H
#define SIMULATION_NAMED_H

#include "script.h"

extern const script_t named_scripts[];
extern const size_t named_script_count;

/* NULL: there is none of that name. */
const script_t *named_find(const char *name);

/* Runs all of them, as they are and with each defect. 0: all as it must be. */
int named_run(void);

#endif
