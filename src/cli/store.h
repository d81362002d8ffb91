/*
 * The store behind a command: opening it, and what to say when it fails.
 */
#ifndef ONCE_CLI_STORE_H
#define ONCE_CLI_STORE_H

#include <once/once.h>

#include "cli/cli.h"

/*
 * Opens the call's store; a local one must exist. It removes nothing by itself (no reaping): looking must not change what is
 * looked at. Returns ONCE__CLI_OK, or an exit code after an error message.
 */
int once__cli_open(const once__cli_call_t *call, once_t **once);

/* The same, for a program of several threads. */
int once__cli_open_threaded(const once__cli_call_t *call, once_t **once);

/* The same for a URL, made where there is none, and with these options: name, value, name, value, ..., NULL. */
int once__cli_open_url(const char *url, const char *const *settings, once_t **once);

/* Is the server of this URL there at all? Says so if not; for commands whose own handles would go on trying. */
int once__cli_reach(const char *url);

/*
 * A handle loads the secrets by itself; ids, scope hashes and rotation are possible only after that. ONCE_OK when they are
 * there, else why they are not.
 */
int once__cli_wait_for_secrets(once_t *once);

/* Ends the handle; everything the commands do has been answered by then. NULL is fine. */
void once__cli_close(once_t *once);

/* After a scan: reports how many records it could not show, and returns the exit code for it; else `code`. `answer` may be NULL. */
int once__cli_tell_damaged(const once_answer_t *answer, int code);

/* Says "cannot WHAT: why; what to do" and returns the exit code that fits. */
int once__cli_store_failed(const char *what, int error);

#endif
