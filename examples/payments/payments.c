/*
 * A backend to put once in front of: it makes payments, and makes another one whenever it is asked to, as most backends do.
 *
 *     payments [--listen 127.0.0.1:3000] [--delay MS] [--then close | STATUS]
 *
 *     POST /payments {"amount": 4200}   makes a payment: 201 {"id":"pay_1","amount":4200}
 *     GET  /executions                  how many were made: {"executions":1}
 *
 * To see what becomes of slow and failing backends: POST /payments?delay=2000 answers after two seconds, &then=close makes the
 * payment and closes the connection in place of an answer, &then=503 makes it and answers 503. As options of the program these
 * hold for every payment. Each payment that is made is printed on standard output.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "http.h"

static unsigned long executions;
static unsigned default_delay_ms;
static const char *default_then = "";

/* The value of a name in a query, or `otherwise`; up to the next &. */
static const char *parameter(const char *query, const char *name, const char *otherwise)
{
    size_t len = strlen(name);

    for (const char *at = query; at != NULL && *at != '\0'; at = strchr(at, '&')) {
        at += *at == '&';
        if (strncmp(at, name, len) == 0 && at[len] == '=') {
            return at + len + 1;
        }
    }
    return otherwise;
}

/* The whole number behind "amount": in a JSON text; 0: there is none. An example, not a parser. */
static unsigned long amount_of(const char *body)
{
    const char *name = strstr(body, "\"amount\"");
    const char *colon = name != NULL ? strchr(name, ':') : NULL;

    return colon != NULL ? strtoul(colon + 1, NULL, 10) : 0;
}

/* A header can hold anything: nothing that controls a terminal is printed. */
static const char *shown(const char *key)
{
    for (const char *at = key; *at != '\0'; at++) {
        if (*at < 0x20 || *at > 0x7e) {
            return "not printable";
        }
    }
    return key[0] != '\0' ? key : "none";
}

/* Makes the payment. From here on there is no way back, whatever the caller gets to know. */
static void pay(const http_request_t *request, http_response_t *response)
{
    unsigned long amount = amount_of(request->body);
    const char *then = parameter(request->query, "then", default_then);
    const char *delay;

    if (amount == 0) {
        response->status = 400;
        snprintf(response->body, sizeof(response->body), "{\"error\":\"which amount?\"}\n");
        return;
    }
    executions++;
    printf("payments: pay_%lu over %lu, key %s\n", executions, amount, shown(request->key));
    fflush(stdout);
    response->status = 201;
    snprintf(response->body, sizeof(response->body), "{\"id\":\"pay_%lu\",\"amount\":%lu}\n",
             executions, amount);
    delay = parameter(request->query, "delay", NULL);
    response->delay_ms = delay != NULL ? (unsigned)strtoul(delay, NULL, 10) : default_delay_ms;
    if (strncmp(then, "close", 5) == 0) {
        response->hang_up = 1;
    } else if (strtoul(then, NULL, 10) >= 200) {
        response->status = (int)strtoul(then, NULL, 10);
        snprintf(response->body, sizeof(response->body), "{\"error\":\"as you wish\"}\n");
    }
}

static void handle(const http_request_t *request, http_response_t *response)
{
    if (strcmp(request->path, "/payments") == 0 && strcmp(request->method, "POST") == 0) {
        pay(request, response);
    } else if (strcmp(request->path, "/executions") == 0 && strcmp(request->method, "GET") == 0) {
        response->status = 200;
        snprintf(response->body, sizeof(response->body), "{\"executions\":%lu}\n", executions);
    } else {
        response->status = 404;
        snprintf(response->body, sizeof(response->body),
                 "{\"error\":\"there are POST /payments and GET /executions\"}\n");
    }
}

static void ready(const char *address)
{
    printf("payments: listening on http://%s\n", address);
    fflush(stdout);
}

int main(int argc, char **argv)
{
    const char *address = "127.0.0.1:3000";

    for (int i = 1; i < argc; i += 2) {
        if (i + 1 < argc && strcmp(argv[i], "--listen") == 0) {
            address = argv[i + 1];
        } else if (i + 1 < argc && strcmp(argv[i], "--delay") == 0) {
            default_delay_ms = (unsigned)strtoul(argv[i + 1], NULL, 10);
        } else if (i + 1 < argc && strcmp(argv[i], "--then") == 0) {
            default_then = argv[i + 1];
        } else {
            fputs("usage: payments [--listen IP:PORT] [--delay MS] [--then close | STATUS]\n",
                  stderr);
            return 2;
        }
    }
    return http_serve(address, handle, ready) == 0 ? 0 : 1;
}
