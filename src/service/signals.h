/* Signals as a descriptor, for the loop of a long-running program. */
#ifndef ONCE_SERVICE_SIGNALS_H
#define ONCE_SERVICE_SIGNALS_H

/*
 * Blocks INT, TERM and HUP in this thread and in those that it starts later, and ignores PIPE. Returns a descriptor that is
 * readable when one of the three has arrived, or -1.
 */
int once__service_signals_open(void);

/* The number of the next signal, 0 if there is none. Does not wait. */
int once__service_signals_take(int fd);

#endif
