/*
 * Tells systemd how the program is (sd_notify(3)): for units with Type=notify and WatchdogSec=. Does nothing anywhere else.
 *
 * One main loop of the program calls these; they are not for several threads.
 */
#ifndef ONCE_SERVICE_NOTIFY_H
#define ONCE_SERVICE_NOTIFY_H

/*
 * To be called in every turn of the main loop once the program serves: says so the first time, and that it is alive whenever half
 * of the watchdog's time has passed. Returns in how many milliseconds it has to be called again at the latest; -1: no watchdog.
 */
int once__service_notify_turn(void);

/* The program is ending: no new work, what is under way is finished. */
void once__service_notify_stopping(void);

#endif
