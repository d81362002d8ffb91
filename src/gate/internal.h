/*
 * once gate: an nginx with the module, configured from a command line.
 *
 * A plan is the command line, checked (plan.c): address.c, route.c and user.c read parts of it, described.c adds the routes of
 * an OpenAPI document (document.c, openapi.c), config.c writes it as a configuration, run.c runs nginx with that in a private
 * directory until it ends, and log.c passes on what it says.
 */
#ifndef ONCE_GATE_INTERNAL_H
#define ONCE_GATE_INTERNAL_H

#include <poll.h>
#include <stddef.h>
#include <stdio.h>
#include <sys/socket.h>
#include <sys/types.h>

#include "cli/commands.h"
#include "gate/openapi.h"

#define ONCE__GATE_WORD_MAX   1000 /* bytes of one word; nginx reads 4096 at a time */
#define ONCE__GATE_WORDS_MAX  40   /* words of a route or of a directive */
#define ONCE__GATE_PATH_SIZE  4096
#define ONCE__GATE_LISTEN_MAX 16
#define ONCE__GATE_AUTH_PATH  512

/* Reports a usage error of the command. Returns ONCE__CLI_USAGE. */
#define ONCE__GATE_USAGE(...) once__cli_usage(&once__cli_gate, __VA_ARGS__)

/* Where to listen. `text` is as nginx writes it: 127.0.0.1:8080, [::1]:8080, unix:/run/gate.sock. */
typedef struct once__gate_address {
    char text[128];
    struct sockaddr_storage sockaddr;
    socklen_t sockaddr_len;
} once__gate_address_t;

/* Where requests go. */
typedef struct once__gate_upstream {
    int tls;
    char server[300]; /* HOST:PORT or unix:PATH */
    char host[256];   /* without the port; for TLS */
    char text[320];   /* for people */
} once__gate_upstream_t;

/* What decides whether a caller may have a stored response. */
typedef struct once__gate_auth {
    int given;
    int own;                         /* a server of its own; 0: a path of the upstream */
    once__gate_upstream_t server;    /* if so */
    char path[ONCE__GATE_AUTH_PATH]; /* with a query, if any */
} once__gate_auth_t;

/* The words of a text; they point into `memory`. */
typedef struct once__gate_words {
    char *memory;
    char *list[ONCE__GATE_WORDS_MAX];
    size_t count;
} once__gate_words_t;

/* Whose key it is. */
typedef struct once__gate_scope {
    char value[128]; /* of the directive: "$http_authorization" or "none" */
    int optional;
    char shown[160]; /* for people */
} once__gate_scope_t;

enum once__gate_setting_flag {
    ONCE__GATE_LIST = 1,   /* takes several words, in a route separated by commas */
    ONCE__GATE_POLICY = 2, /* part of a policy */
};

/* What a route can set: a directive of the module without "once_". */
typedef struct once__gate_setting {
    const char *name;
    int flags;
} once__gate_setting_t;

/* METHODS PATH [NAME=VALUE]... */
typedef struct once__gate_route {
    once__gate_words_t words; /* the texts below point into it */
    const char *methods;      /* separated by commas */
    const char *path;
    int exact; /* the path alone, not what begins with it */
    const char
        *pattern; /* of a document: the regular expression that stands for the path; NULL: none */
    const char *
        needy; /* of a document: the methods that need a key, if others of the route do not; NULL: all alike */
    int off; /* of a document: not guarded, although a pattern after it matches it */
    once__gate_scope_t scope;
    int has_scope;
    struct {
        const once__gate_setting_t *known;
        const char *value;
    } settings[ONCE__GATE_WORDS_MAX];
    size_t setting_count;
} once__gate_route_t;

/* The options as they were given. */
typedef struct once__gate_options {
    const char *upstream;
    once__cli_list_t listen;
    const char *store;
    once__cli_list_t route;
    const char *openapi;
    const char *scope;
    const char *profile;
    const char *tls_cert;
    const char *tls_key;
    const char *status;
    const char *upstream_ca;
    const char *auth;
    const char *user;
    const char *socket_mode;
    const char *log_keys;
    int log_json;
    once__cli_list_t set;
    once__cli_number_t workers;
    const char *nginx;
    const char *module;
    const char *config;
    int check;
    int print_config;
} once__gate_options_t;

typedef struct once__gate_plan {
    const once__cli_call_t *call; /* the command line, to be read again by a reload */
    const once__gate_options_t *options;
    once__gate_upstream_t upstream;
    once__gate_address_t listen[ONCE__GATE_LISTEN_MAX];
    size_t listen_count;
    once__gate_address_t status;
    int has_status;
    once__gate_scope_t scope;
    int scope_is_default;
    once__gate_route_t *routes;
    size_t route_count;
    once__openapi_t api; /* of --openapi: what its routes were made of */
    once__gate_words_t *directives;
    size_t directive_count;
    unsigned workers;
    char store[ONCE__GATE_PATH_SIZE]; /* the URL; a local path in it is absolute */
    char tls_cert[ONCE__GATE_PATH_SIZE];
    char tls_key[ONCE__GATE_PATH_SIZE]; /* both "": no TLS */
    char upstream_ca[ONCE__GATE_PATH_SIZE];
    once__gate_auth_t auth;
    char folder[ONCE__GATE_PATH_SIZE]; /* of a local store; "": another store */
    char user[64];                     /* of the workers; "": the user who started the gate */
    char group[64];
    uid_t uid;
    gid_t gid;
    mode_t socket_mode;
    char nginx[ONCE__GATE_PATH_SIZE];
    char module[ONCE__GATE_PATH_SIZE];
    unsigned connections; /* of a worker */
    int http2_directive;  /* since nginx 1.25.1 HTTP/2 is a directive, not a parameter of listen */
} once__gate_plan_t;

/*
 * Functions that return an int return ONCE__CLI_OK, or an exit code after an error message, unless they ask a question.
 *
 * plan.c. The plan is zeroed except for its options, and is freed after errors, too. nginx itself is found later, by gate.c.
 */
int once__gate_read_plan(once__gate_plan_t *plan);
void once__gate_free_plan(once__gate_plan_t *plan);

/* What happens to an operation of this route (NULL: of every path) whose outcome is not known. */
const char *once__gate_policy(const once__gate_plan_t *plan, const once__gate_route_t *route);

/* Finds nginx, or reports that it is missing. */
int once__gate_find_nginx(const char *option, char path[ONCE__GATE_PATH_SIZE]);

/* CA certificates to verify the backend with: the option's, those of SSL_CERT_FILE, or the first of these files that exists. */
int once__gate_find_trusted(const char *option, const char *const *places,
                            char path[ONCE__GATE_PATH_SIZE]);

/* address.c: "IP:PORT", "PORT" (of 127.0.0.1), "*:PORT", "localhost:PORT" or "unix:PATH". */
int once__gate_read_address(const char *option, const char *text, once__gate_address_t *address);

/* Can the gate listen there? Removes a socket file that no program listens on. */
int once__gate_check_address(const once__gate_address_t *address);

/* Does a program accept connections there? */
int once__gate_answers(const once__gate_address_t *address);
int once__gate_upstream_answers(const once__gate_upstream_t *upstream);

/* Can only programs of this machine reach it: a loopback address, or a unix socket? */
int once__gate_is_local(const once__gate_address_t *address);

/* "http://HOST[:PORT]", "https://HOST[:PORT]", "http://unix:PATH", "HOST:PORT" or "PORT"; the host must be known. */
int once__gate_read_upstream(const char *option, const char *url, once__gate_upstream_t *upstream);

/* --auth: "http://HOST[:PORT]/PATH", "https://...", or "/PATH" of the upstream. */
int once__gate_read_auth(once__gate_plan_t *plan);

/* route.c: "header:NAME", "cookie:NAME" (",optional" may follow both), "none"; a route; a directive without its semicolon. */
int once__gate_read_scope(const char *text, once__gate_scope_t *scope);
int once__gate_read_route(const char *text, once__gate_route_t *route);
int once__gate_read_directive(const char *text, once__gate_words_t *words);
void once__gate_words_free(once__gate_words_t *words);

/* One more NAME=VALUE of a route, which is changed and kept. `label` begins an error message. */
int once__gate_set_route(const char *label, once__gate_route_t *route, char *word);

/*
 * described.c: appends the routes of --openapi to those of the command line, if it was given; says afterwards what became of the
 * document, a line for each path.
 */
int once__gate_read_openapi(once__gate_plan_t *plan);
void once__gate_tell_openapi(const once__gate_plan_t *plan);

/* user.c: the user of the workers. Root must name one, unless the configuration is only printed. */
int once__gate_read_user(once__gate_plan_t *plan);

/* Runs `work` as the user of the workers, if that is another one in a process of its own. Returns what `work` returns. */
int once__gate_as_user(const once__gate_plan_t *plan, int (*work)(const once__gate_plan_t *plan));

/* Makes the directory of a local store for the user of the workers. Returns 1 if it is new. */
int once__gate_make_store(const once__gate_plan_t *plan);

/* nginx opens unix sockets to everyone: gives this one to the user and mode of the plan. */
void once__gate_keep_private(const once__gate_plan_t *plan, const once__gate_address_t *address);

/* config.c: the configuration; paths that nginx writes to are relative to its prefix. */
void once__gate_write_config(const once__gate_plan_t *plan, FILE *out);

/*
 * log.c: what nginx writes, on its way to standard output. Nothing here waits: what cannot be written yet is kept, and while there
 * is any, nothing more is read.
 */
typedef struct once__gate_log once__gate_log_t;

/* `json`: what comes from `errors` becomes JSON, and lines stay whole. Takes both descriptors. NULL: out of memory. */
once__gate_log_t *once__gate_log_new(int output, int errors, int json);
void once__gate_log_free(once__gate_log_t *log);

/* Fills two entries for what nginx writes, and one for standard output. */
#define ONCE__GATE_LOG_POLLS 3
void once__gate_log_poll(const once__gate_log_t *log, struct pollfd polls[ONCE__GATE_LOG_POLLS]);
void once__gate_log_turn(once__gate_log_t *log, const struct pollfd polls[ONCE__GATE_LOG_POLLS]);

/* Gives up what is left: another process holds the pipes. */
void once__gate_log_cut(once__gate_log_t *log);
int once__gate_log_is_done(const once__gate_log_t *log);

/* A line of the gate's own. `text` is for people, `message` the same for JSON. `log` may be NULL for the former. */
void once__gate_log_say(once__gate_log_t *log, const char *text, const char *message);

/* run.c: the version of an nginx (1022001 is 1.22.1; 0: unknown). Runs it in the foreground until it ends. */
unsigned once__gate_version(const char *nginx);
int once__gate_run(const once__gate_plan_t *plan);

/* Lets nginx judge the configuration of the plan, without running it. */
int once__gate_check(const once__gate_plan_t *plan);

/*
 * gate.c: reads the command line and its configuration file again, and writes what nginx is to read to `path`. Refuses what only
 * a new start can change.
 */
int once__gate_write_again(const once__gate_plan_t *now, const char *path);

#endif
