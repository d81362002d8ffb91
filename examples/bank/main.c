/*
 * bank: a transfer service in which every key moves money once, whatever crashes. README.md explains how.
 */
#include <getopt.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "bank.h"
#include "http.h"
#include "money.h"
#include "provider.h"

#define STOP_S 30

typedef struct settings {
    const char *database, *listen;
    unsigned connections, pool, idle_ms;
    bank_t bank;
} settings_t;

static const char usage[] =
    "usage: bank [--database URL] [--listen IP:PORT] [--direct] [--provider URL] ...\n"
    "\n"
    "  --database URL         PostgreSQL with the schemas once and bank (default: $BANK_DATABASE)\n"
    "  --listen IP:PORT       default 127.0.0.1:3000; port 0: the system chooses one\n"
    "  --direct               no gate is in front: the bank claims keys itself, and trusts no\n"
    "                         Once-Claim that a request brings along\n"
    "  --provider URL         where payouts are asked for\n"
    "  --provider-timeout MS  how long it may take to answer (10000); less than half the lease\n"
    "  --lease TIME           of claims that the bank makes itself (30s)\n"
    "  --connections N        maximum number of HTTP connections, each with a thread (256)\n"
    "  --pool N               maximum number of connections to PostgreSQL (8)\n"
    "  --idle MS              a transaction that is idle for longer is ended (10000)\n"
    "  --help                 this text\n"
    "\n"
    "POST /transfers, POST /payouts (both with Idempotency-Key), GET and PUT /accounts/ID,\n"
    "GET /transfers/ID, GET /payouts/ID, GET /health. The service in front names the\n"
    "customer in the header Bank-Customer. SIGTERM and SIGINT let requests end first.\n";

static int read_number(const char *name, const char *text, unsigned max, unsigned *number)
{
    char *end;
    unsigned long value = strtoul(text, &end, 10);

    if (text[0] < '0' || text[0] > '9' || *end != '\0' || value == 0 || value > max) {
        fprintf(stderr, "bank: --%s needs a number from 1 to %u, not \"%s\"\n", name, max, text);
        return -1;
    }
    *number = (unsigned)value;
    return 0;
}

static int read_lease(const char *text, once_policy_t *policy)
{
    once_error_t error;

    if (once_policy_set(policy, "lease", text, &error) != ONCE_OK) {
        fprintf(stderr, "bank: --lease: %s\n", error.text);
        return -1;
    }
    return 0;
}

/* Returns 0, 1 if help was asked for, -1 after an error message. */
static int read_options(int argc, char **argv, settings_t *s)
{
    static const struct option options[] = {
        {"database", 1, NULL, 'd'}, {"listen", 1, NULL, 'l'},
        {"direct", 0, NULL, 'D'},   {"provider", 1, NULL, 'p'},
        {"lease", 1, NULL, 'L'},    {"provider-timeout", 1, NULL, 't'},
        {"pool", 1, NULL, 'P'},     {"connections", 1, NULL, 'c'},
        {"idle", 1, NULL, 'i'},     {"help", 0, NULL, 'h'},
        {NULL, 0, NULL, 0},
    };
    int option, code = 0;

    while (code == 0 && (option = getopt_long(argc, argv, "h", options, NULL)) != -1) {
        switch (option) {
        case 'd':
            s->database = optarg;
            break;
        case 'l':
            s->listen = optarg;
            break;
        case 'D':
            s->bank.direct = 1;
            break;
        case 'p':
            s->bank.provider = optarg;
            break;
        case 'L':
            code = read_lease(optarg, s->bank.policy);
            break;
        case 't':
            code = read_number("provider-timeout", optarg, 3600000, &s->bank.provider_timeout_ms);
            break;
        case 'P':
            code = read_number("pool", optarg, 1000, &s->pool);
            break;
        case 'c':
            code = read_number("connections", optarg, 10000, &s->connections);
            break;
        case 'i':
            code = read_number("idle", optarg, 3600000, &s->idle_ms);
            break;
        case 'h':
            fputs(usage, stdout);
            return 1;
        default:
            code = -1;
        }
    }
    if (code == 0 && optind < argc) {
        fprintf(stderr, "bank: what is \"%s\"?\n", argv[optind]);
        code = -1;
    }
    if (code == 0 && (s->database == NULL || s->database[0] == '\0')) {
        fputs("bank: which database? --database or BANK_DATABASE names it\n", stderr);
        code = -1;
    }
    return code;
}

/* The database is there, its schemas are, and the currencies are known. 0, or -1 after saying what is missing. */
static int look_at_database(bank_t *bank)
{
    static const char currencies[] = "SELECT code, digits FROM bank.currencies";
    db_t *db = pool_take(bank->pool, 1000);
    PGresult *rows;
    int code = 0;

    if (db == NULL) {
        fprintf(stderr, "bank: no connection to PostgreSQL: %s\n", pool_trouble(bank->pool));
        return -1;
    }
    if (db_run0(db, "SELECT once.version()") != DB_OK) {
        fputs("bank: the schema once cannot be used: `once pg install URL`, and GRANT bank TO the "
              "user\n",
              stderr);
        code = -1;
    } else if (db_run(db, currencies, 0, NULL, &rows) != DB_OK) {
        fputs("bank: the schema bank cannot be used: examples/bank/schema.sql makes it\n", stderr);
        code = -1;
    } else {
        for (int i = 0; code == 0 && i < PQntuples(rows); i++) {
            code = money_know(PQgetvalue(rows, i, 0), atoi(PQgetvalue(rows, i, 1)));
        }
        PQclear(rows);
    }
    pool_give(db);
    return code;
}

/* A claim that is taken back at once: claims of our own need the secrets that the first program to open the store makes. */
static int look_at_claims(bank_t *bank)
{
    db_t *db = pool_take(bank->pool, 1000);
    db_end_t end = db != NULL ? db_begin(db) : DB_AGAIN;

    if (end == DB_OK) {
        end = db_run0(db, "SELECT outcome FROM once.claim('@bank', 'at-start')");
    }
    if (end != DB_OK) {
        fputs(
            "bank: the store is not in use yet: open it once, for example with `once stats URL`\n",
            stderr);
    }
    if (db != NULL) {
        db_rollback(db);
        pool_give(db);
    }
    return end == DB_OK ? 0 : -1;
}

static once_policy_t *make_policy(void)
{
    once_policy_t *policy = once_policy_new();

    if (policy == NULL || once_policy_set(policy, "recover", "transactional", NULL) != ONCE_OK) {
        fputs("bank: out of memory\n", stderr);
        abort();
    }
    return policy;
}

static int serve(settings_t *s)
{
    http_t *http;
    sigset_t ends;
    unsigned left;
    int number;

    sigemptyset(&ends); /* before there are threads: they inherit it */
    sigaddset(&ends, SIGINT);
    sigaddset(&ends, SIGTERM);
    pthread_sigmask(SIG_BLOCK, &ends, NULL);
    signal(SIGPIPE, SIG_IGN);
    http = http_start(s->listen, s->connections, &s->bank);
    if (http == NULL) {
        return 1;
    }
    printf("bank: listening on http://%s\n", http_address(http));
    fflush(stdout);
    sigwait(&ends, &number);
    left = http_stop(http, STOP_S);
    if (left > 0) {
        fprintf(stderr, "bank: %u requests were not waited for\n", left);
    }
    return 0;
}

int main(int argc, char **argv)
{
    settings_t s = {
        .database = getenv("BANK_DATABASE"),
        .listen = "127.0.0.1:3000",
        .connections = 256,
        .pool = 8,
        .idle_ms = 10000,
        .bank = {.provider_timeout_ms = 10000, .policy = make_policy()},
    };
    int code = read_options(argc, argv, &s);

    if (code != 0) {
        once_policy_free(s.bank.policy);
        return code > 0 ? 0 : 2;
    }
    if (provider_init() != 0) {
        fputs("bank: libcurl does not start\n", stderr);
        return 1;
    }
    s.bank.pool = pool_new(s.database, s.pool, s.idle_ms);
    code = look_at_database(&s.bank) == 0 && (!s.bank.direct || look_at_claims(&s.bank) == 0)
               ? serve(&s)
               : 1;
    pool_free(s.bank.pool);
    once_policy_free(s.bank.policy);
    return code;
}
