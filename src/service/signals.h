/*
 * Signals as a descriptor, for the loop of a program that runs for long.
 */
#ifndef ONCE_SERVICE_SIGNALS_H
#define ONCE_SERVICE_SIGNALS_H

/*
 * Blocks INT, TERM and HUP in this thread and those that it starts later, and ignores PIPE. Returns a descriptor that can be
 * read when one of the three came, or -1.
 */
int once__service_signals_open(void);

/* The number of the next signal that came, 0: none. Does not wait. */
int once__service_signals_take(int fd);

#endif
