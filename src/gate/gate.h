/*
 * once gate: an nginx with the module, configured from a command line.
 *
 * A plan is everything that the command line says, checked (plan.c): address.c, upstream.c, route.c and
 * user.c read its parts, find.c looks for the programs, config.c writes it as a configuration, folder.c
 * makes a directory for that, nginx.c starts nginx there, and run.c stays with it until it ends.
 */
#ifndef ONCE_GATE_GATE_H
#define ONCE_GATE_GATE_H

#include <stddef.h>
#include <stdio.h>
#include <sys/socket.h>
#include <sys/types.h>

#include "cli/cli.h"

#define ONCE__GATE_WORD_MAX                                                                        \
    1000 /* bytes of one word in the configuration; nginx reads 4096 at a time */
#define ONCE__GATE_WORDS_MAX  24 /* words of a route or of a directive */
#define ONCE__GATE_PATH_SIZE  4096
#define ONCE__GATE_LISTEN_MAX 16

/* Where to listen. */
typedef struct once__gate_address {
    char text
        [128]; /* as nginx and people write it: 127.0.0.1:8080, [::1]:8080, unix:/run/gate.sock */
    struct sockaddr_storage sockaddr;
    socklen_t sockaddr_len;
} once__gate_address_t;

/* Reads "IP:PORT", "PORT" (of 127.0.0.1), "*:PORT", "localhost:PORT" or "unix:PATH". ONCE__CLI_OK, or the usage error. */
int once__gate_read_address(const once__cli_command_t *command, const char *option,
                            const char *text, once__gate_address_t *address);

/* Parts of addresses: 1 to 65535 (0 or -1); a path that nginx takes for nothing else. */
int once__gate_read_port(const char *text, uint16_t *port);
int once__gate_is_plain_path(const char *path);

/* Can somebody listen there? Says why not. A socket file that nobody listens on any more is removed. */
int once__gate_check_address(const once__gate_address_t *address);

/* Does somebody accept connections there? */
int once__gate_answers(const once__gate_address_t *address);

/* Only programs of this machine reach it: a loopback address, or a socket of the file system. */
int once__gate_is_local(const once__gate_address_t *address);

/* Where requests go. */
typedef struct once__gate_upstream {
    int tls;
    char server[300]; /* HOST:PORT or unix:PATH */
    char host[256];   /* without the port; for TLS */
    char text[320];   /* for people: the URL without anything secret */
} once__gate_upstream_t;

/* Reads "http://HOST[:PORT]", "https://HOST[:PORT]", "http://unix:PATH", "HOST:PORT" or "PORT"; the host must be known. */
int once__gate_read_upstream(const once__cli_command_t *command, const char *option,
                             const char *url, once__gate_upstream_t *upstream);

#define ONCE__GATE_AUTH_PATH 512

/* What says whether a caller may have a stored answer. */
typedef struct once__gate_auth {
    int given;
    int own;                         /* a server of its own; 0: a path of the upstream */
    once__gate_upstream_t server;    /* if so */
    char path[ONCE__GATE_AUTH_PATH]; /* with a query, if any */
} once__gate_auth_t;

/* Does the backend accept connections now? */
int once__gate_upstream_answers(const once__gate_upstream_t *upstream);

/* Words of a text: borrowed from `memory`, a copy of it. */
typedef struct once__gate_words {
    char *memory;
    char *list[ONCE__GATE_WORDS_MAX];
    size_t count;
} once__gate_words_t;

/* Whose key it is. */
typedef struct once__gate_scope {
    char value[128]; /* of the directive: "$http_authorization" or "none" */
    int optional;
    char told[160]; /* for people */
} once__gate_scope_t;

/* Reads "header:NAME", "cookie:NAME" (both with ",optional" behind them if need be), "none". */
int once__gate_read_scope(const once__cli_command_t *command, const char *text,
                          once__gate_scope_t *scope);

/* METHODS PATH [NAME=VALUE]... */
typedef struct once__gate_route {
    once__gate_words_t words;
    const char *methods; /* separated by commas */
    const char *path;
    int exact; /* the path alone, not what begins with it */
    once__gate_scope_t scope;
    int has_scope;
} once__gate_route_t;

int once__gate_read_route(const once__cli_command_t *command, const char *text,
                          once__gate_route_t *route);

/* One directive of the module or of nginx, without its semicolon. */
int once__gate_read_directive(const once__cli_command_t *command, const char *text,
                              once__gate_words_t *words);

void once__gate_words_free(once__gate_words_t *words);

/* The directive that a setting of a route stands for, NULL: there is no such setting. */
const char *once__gate_directive_of(const char *name, size_t len);

/* The options as they were given. */
typedef struct once__gate_options {
    const char *upstream;
    once__cli_list_t listen;
    const char *store;
    once__cli_list_t route;
    const char *scope;
    const char *tls_cert;
    const char *tls_key;
    const char *status;
    const char *upstream_ca;
    const char *auth;
    const char *user;
    const char *socket_mode;
    once__cli_list_t set;
    once__cli_number_t workers;
    const char *nginx;
    const char *module;
    int print_config;
} once__gate_options_t;

typedef struct once__gate_plan {
    once__gate_upstream_t upstream;
    once__gate_address_t listen[ONCE__GATE_LISTEN_MAX];
    size_t listen_count;
    once__gate_address_t status;
    int has_status;
    once__gate_scope_t scope;
    int scope_is_default;
    once__gate_route_t *routes;
    size_t route_count;
    once__gate_words_t *directives;
    size_t directive_count;
    unsigned workers;
    char store[ONCE__GATE_PATH_SIZE]; /* the URL; a local path in it is absolute */
    char tls_cert[ONCE__GATE_PATH_SIZE];
    char tls_key[ONCE__GATE_PATH_SIZE]; /* both "": no TLS */
    char upstream_ca[ONCE__GATE_PATH_SIZE];
    once__gate_auth_t auth;
    char folder
        [ONCE__GATE_PATH_SIZE]; /* of a local store; "": another store, or a path that only the library can decode */
    char user[64]; /* whom the processes that serve belong to; "": who started the gate */
    char group[64];
    uid_t uid;
    gid_t gid;
    mode_t socket_mode;
    char nginx[ONCE__GATE_PATH_SIZE];
    char module[ONCE__GATE_PATH_SIZE];
    unsigned connections; /* of a worker */
    int http2_directive; /* HTTP/2 is a directive of its own, not a parameter of listen: since 1.25.1 */
} once__gate_plan_t;

/* What happens to an operation of this route (NULL: of every path) when its outcome is not known. */
const char *once__gate_policy(const once__gate_plan_t *plan, const once__gate_route_t *route);

/* Reads --auth: "http://HOST[:PORT]/PATH", "https://...", or "/PATH" of the upstream. */
int once__gate_read_auth(const once__cli_command_t *command, const once__gate_options_t *gate,
                         once__gate_plan_t *plan);

/* Zeroed before; freed also after an error. Looks for the module, not yet for nginx. */
int once__gate_read_plan(const once__cli_command_t *command, const once__gate_options_t *gate,
                         once__gate_plan_t *plan);
void once__gate_free_plan(once__gate_plan_t *plan);

/* Finds the programs where the options name none. Says what is missing; the first one only tells whether it was found. */
int once__gate_look_for_nginx(const char *option, char path[ONCE__GATE_PATH_SIZE]);
int once__gate_find_nginx(const char *option, char path[ONCE__GATE_PATH_SIZE]);
int once__gate_find_module(const char *option, char path[ONCE__GATE_PATH_SIZE]);

/* An absolute path for a file that must be readable. `what` is for the message. */
int once__gate_find_file(const char *what, const char *name, char path[ONCE__GATE_PATH_SIZE]);

/*
 * The certificates that a backend's is checked with: the option's, those of SSL_CERT_FILE, or the first of these files that is
 * there. The list ends with NULL.
 */
int once__gate_find_trusted(const char *option, const char *const *places,
                            char path[ONCE__GATE_PATH_SIZE]);

/* Whom the workers belong to. Root must say it, unless the configuration is only printed. */
int once__gate_read_user(const once__cli_command_t *command, const once__gate_options_t *gate,
                         once__gate_plan_t *plan);

/* As the workers' user, in a process of its own where that is another one. Returns what `work` returns. */
int once__gate_as_user(const once__gate_plan_t *plan, int (*work)(const once__gate_plan_t *plan));

/* The directory of a local store that is not there yet, for the workers' user. Is it new? */
int once__gate_make_store(const once__gate_plan_t *plan);

/* nginx gives sockets of the file system to everybody: this one to whom the plan says. */
void once__gate_keep_private(const once__gate_plan_t *plan, const once__gate_address_t *address);

/* The version of an nginx: 1022001 is 1.22.1; 0: it could not be found out. */
unsigned once__gate_version(const char *nginx);

/* The same configuration is printed, tried and run: paths that nginx writes to are relative to its prefix. */
void once__gate_write_config(const once__gate_plan_t *plan, FILE *out);

/* The private directory of a run. */
typedef struct once__gate_nginx {
    const once__gate_plan_t *plan;
    char folder[ONCE__GATE_PATH_SIZE]; /* "": not made */
    int lock;                          /* holds the folder, -1: none */
    char config[ONCE__GATE_PATH_SIZE + 16];
} once__gate_nginx_t;

/* Makes it, with the configuration in it, and removes those that were left behind. Says what is wrong. */
int once__gate_make_folder(once__gate_nginx_t *nginx);
void once__gate_remove_folder(once__gate_nginx_t *nginx);

/* Lets nginx read the configuration, and tells what it says against it. */
int once__gate_try(const once__gate_nginx_t *nginx);

/* Starts nginx, to test the configuration or to serve. `log`: to be read from. Its process id, or -1 after saying why not. */
pid_t once__gate_start(const once__gate_nginx_t *nginx, int test, int *log);

/* Runs nginx in the foreground until it ends; returns the exit code. */
int once__gate_run(const once__gate_plan_t *plan);

#endif
