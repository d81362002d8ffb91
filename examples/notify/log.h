/*
 * One JSON object a line on standard error. What is logged names events by id and key; never an address, a text that was sent, or
 * what a server said in its own words, because that may contain them.
 */
#ifndef EXAMPLES_NOTIFY_LOG_H
#define EXAMPLES_NOTIFY_LOG_H

#define LOG_INFO    "info"
#define LOG_WARNING "warn"
#define LOG_ERROR   "error"

/* `format` and what follows are those of jansson's json_pack, and make an object: its members are added to the line. */
void log_line(const char *level, const char *what, const char *format, ...);

#endif
