/*
 * once serve: libonce as HTTP and JSON, for programs in every language. docs/serve.md is the specification, openapi/serve.yaml
 * describes every request and answer.
 */
#ifndef ONCE_SERVE_SERVE_H
#define ONCE_SERVE_SERVE_H

#include <stddef.h>
#include <stdint.h>

#include <once/once.h>

#include "service/log.h"

typedef struct once__serve_settings {
    const char *listen;     /* unix:PATH, PORT, 127.0.0.1:PORT or [::1]:PORT */
    unsigned socket_mode;   /* of a unix socket */
    const char *token_file; /* needed for TCP; NULL: none */
    const char *metrics;    /* another address for /metrics, without a token; NULL: none */
    const char *store;      /* what GET /v1 calls the store: "redis" */
    const once_policy_t *hold, *retry; /* of claims that give neither ttl_ms nor lease_ms */
    size_t connections;                /* at most */
    size_t request_bytes;              /* of one request, at most */
    uint64_t idle_ms;  /* a connection without claims ends after this long without a request */
    uint64_t drain_ms; /* how long answers in flight are waited for at the end */
    int needs_scope;   /* a request without a scope is refused */
    int signals;       /* a descriptor of once__service_signals_open */
} once__serve_settings_t;

enum once__serve_end {
    ONCE__SERVE_ENDED,   /* by a signal; everything in flight was answered */
    ONCE__SERVE_ABORTED, /* by a signal; something in flight was not */
    ONCE__SERVE_WRONG,   /* a setting is wrong: `error` says which */
    ONCE__SERVE_FAILED,  /* `error` says why */
};

/* Serves until a signal ends it, and closes `once`. Returns once__serve_end. */
int once__serve_run(const once__serve_settings_t *settings, once_t *once,
                    const once__service_log_t *log, char *error, size_t size);

#endif
