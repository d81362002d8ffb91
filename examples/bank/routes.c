#include "routes.h"

#include <string.h>

#include "operation.h"

static db_end_t look(bank_t *bank, db_t *db, const request_t *request, void *data, int *unsure,
                     answer_t *answer)
{
    return db_run0(db, "SELECT 1");
}

static void health(bank_t *bank, const request_t *request, answer_t *answer)
{
    if (operation_try(bank, request, look, NULL, answer) == DB_OK) {
        answer_json(answer, 200, "application/json", json_pack("{s:s}", "status", "ok"));
    }
}

static const struct {
    const char *method, *path;
    int has_id; /* one more part follows */
    bank_handler_t *handler;
} routes[] = {
    {"POST", "/transfers", 0, transfers_post},
    {"GET", "/transfers", 1, transfers_get},
    {"POST", "/payouts", 0, payouts_post},
    {"GET", "/payouts", 1, payouts_get},
    {"GET", "/accounts", 1, accounts_get},
    {"PUT", "/accounts", 1, accounts_put},
    {"GET", "/health", 0, health},
};

const char *request_id(const request_t *request)
{
    const char *slash = strchr(request->path + 1, '/');

    return slash != NULL ? slash + 1 : "";
}

static int is_path(const char *path, const char *wanted, int has_id)
{
    size_t len = strlen(wanted);

    if (strncmp(path, wanted, len) != 0) {
        return 0;
    }
    return has_id ? path[len] == '/' && path[len + 1] != '\0' && strchr(path + len + 1, '/') == NULL
                  : path[len] == '\0';
}

void route(bank_t *bank, const request_t *request, answer_t *answer)
{
    char allow[32] = "";

    for (size_t i = 0; i < sizeof(routes) / sizeof(routes[0]); i++) {
        if (!is_path(request->path, routes[i].path, routes[i].has_id)) {
            continue;
        }
        if (strcmp(request->method, routes[i].method) == 0) {
            routes[i].handler(bank, request, answer);
            return;
        }
        strcat(strcat(allow, allow[0] != '\0' ? ", " : ""), routes[i].method);
    }
    if (allow[0] == '\0') {
        answer_problem(answer, 404, "not-found", "there is nothing at this path");
    } else {
        answer_problem(answer, 405, "method-not-allowed", "this path does not know the method");
        answer_header(answer, "Allow", allow);
    }
}
