/*
 * Places at which the tests hold the bank, to kill it or something else just there. Only in the program that is built for tests
 * (BANK_STOPS): in the other one they are nothing.
 *
 * A request whose key begins with "stop-" connects to the socket that the environment variable BANK_STOPS names, says where it is,
 * and goes on when the other side hangs up.
 */
#ifndef EXAMPLES_BANK_STOPS_H
#define EXAMPLES_BANK_STOPS_H

#ifdef BANK_STOPS
void stop_at(const char *place, const char *key, int server_pid);
#else
#define stop_at(place, key, server_pid) ((void)0)
#endif

#endif
