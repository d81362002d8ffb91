/*
 * once cost: what records cost in a store at a given rate: space, memory, writes, CPU.
 */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "cli/commands.h"
#include "cli/json.h"
#include "cli/store.h"
#include "cli/table.h"
#include "cli/units.h"

#define RATE     10000
#define TTL_MS   ((uint64_t)24 * 3600 * 1000)
#define DAY_S    86400.0
#define MEASURED 400 /* bytes of the body that the figures are of */
#define BODY_MAX (16 << 20)

typedef struct settings {
    once__cli_number_t rate, ttl, body;
    once__cli_list_t stores;
    int json;
} settings_t;

/* Of one claim and its completion. */
typedef struct figures {
    const char *store, *mode;
    double bytes;   /* of a record, everything included */
    double memory;  /* of those, bytes that are memory and not disk */
    double written; /* to disks */
    double caller_us, server_us;
} figures_t;

/*
 * Measured by `scripts/bench cost`, which prints these rows: Redis 7.0.15 with an append-only file, PostgreSQL 15, local on ext4,
 * two busy cores. A key of 36 bytes, a description, 400 bytes of similar JSON; light: without the body. The CPU of local is that of
 * the same sitting as the others', and what compaction was measured to add later (docs/decisions/local-bytes.md).
 */
/* clang-format off */
static const figures_t measured[] = {
    {"local", "full", 281, 26, 2060, 7.9, 0},
    {"local", "light", 220, 26, 1819, 6.9, 0},
    {"postgres", "full", 380, 0, 1367, 14.1, 71.0},
    {"postgres", "light", 288, 0, 1179, 9.6, 61.5},
    {"redis", "full", 400, 400, 564, 5.4, 16.2},
    {"redis", "light", 321, 321, 501, 4.8, 16.7},
};
/* clang-format on */

#define COUNT (sizeof(measured) / sizeof(measured[0]))

typedef struct cost {
    const figures_t *of;
    double bytes, memory, written; /* of a record, with the body that was asked for */
    double kept;                   /* records */
    double disk_bytes, memory_bytes, written_a_day, caller_cores, server_cores;
} cost_t;

static const figures_t *light_of(const figures_t *of)
{
    for (size_t i = 0; i < COUNT; i++) {
        if (strcmp(measured[i].store, of->store) == 0 && strcmp(measured[i].mode, "light") == 0) {
            return &measured[i];
        }
    }
    return of;
}

/* The body's part of a figure, in proportion. */
static double with_body(double full, double light, uint64_t body)
{
    return light + (full - light) * (double)body / MEASURED;
}

static cost_t cost_of(const figures_t *of, const settings_t *set)
{
    const figures_t *light = light_of(of);
    double rate = (double)set->rate.value;
    cost_t cost = {.of = of, .kept = rate * (double)set->ttl.value / 1000.0};

    cost.bytes = with_body(of->bytes, light->bytes, set->body.value);
    /* What an index takes does not depend on the body. */
    cost.memory = of->memory < of->bytes ? of->memory : cost.bytes;
    cost.written = with_body(of->written, light->written, set->body.value);
    cost.disk_bytes = cost.kept * (cost.bytes - cost.memory);
    cost.memory_bytes = cost.kept * cost.memory;
    cost.written_a_day = rate * DAY_S * cost.written;
    cost.caller_cores = rate * of->caller_us / 1e6;
    cost.server_cores = rate * of->server_us / 1e6;
    return cost;
}

static int is_wanted(const settings_t *set, const figures_t *of)
{
    for (size_t i = 0; i < set->stores.count; i++) {
        if (strcmp(set->stores.items[i], of->store) == 0) {
            return 1;
        }
    }
    return set->stores.count == 0;
}

/* ------------------------------------------------------------------------------------------------------------- output */

/* As disks and memory are sold: "407 GB". Three digits. */
static once__cli_unit_text_t amount(double bytes)
{
    static const char *const units[] = {"B", "kB", "MB", "GB", "TB", "PB"};
    once__cli_unit_text_t out;
    size_t unit = 0;

    while (bytes >= 999.5 && unit + 1 < sizeof(units) / sizeof(units[0])) {
        bytes /= 1000;
        unit++;
    }
    (void)snprintf(out.text, sizeof(out.text), "%.*f %s",
                   unit == 0 || bytes >= 99.95 ? 0
                   : bytes >= 9.995            ? 1
                                               : 2,
                   bytes, units[unit]);
    return out;
}

static void add_amount(once__cli_table_t *table, double bytes)
{
    once__cli_table_add(table, "%s", bytes > 0 ? amount(bytes).text : "-");
}

static int print_text(const settings_t *set)
{
    static const char *const heads[] = {"STORE", "RECORDS",          ">BYTES EACH",
                                        ">DISK", ">MEMORY",          ">WRITTEN A DAY",
                                        ">CPU",  ">CPU OF THE STORE"};
    once__cli_table_t table;

    printf("%" PRIu64 " operations/s, kept for %s: %.0f records; responses of %" PRIu64
           " bytes\n\n",
           set->rate.value, once__cli_duration(set->ttl.value).text,
           (double)set->rate.value * (double)set->ttl.value / 1000.0, set->body.value);
    once__cli_table_start(&table, heads, sizeof(heads) / sizeof(heads[0]));
    for (size_t i = 0; i < COUNT; i++) {
        cost_t cost = cost_of(&measured[i], set);
        if (!is_wanted(set, &measured[i])) {
            continue;
        }
        once__cli_table_add(&table, "%s", measured[i].store);
        once__cli_table_add(&table, "%s", measured[i].mode);
        once__cli_table_add(&table, "%.0f", cost.bytes);
        add_amount(&table, cost.disk_bytes);
        add_amount(&table, cost.memory_bytes);
        add_amount(&table, cost.written_a_day);
        once__cli_table_add(&table, "%.2f cores", cost.caller_cores);
        if (cost.server_cores > 0) {
            once__cli_table_add(&table, "%.2f cores", cost.server_cores);
        } else {
            once__cli_table_add(&table, "-");
        }
    }
    if (once__cli_table_print(&table) != 0) {
        return once__cli_store_failed("print the table", ONCE_E_NOMEM);
    }
    printf(
        "\nMeasured with %d bytes of similar JSON, keys of 36 bytes and a description; other sizes "
        "in proportion.\nLight: without bodies (once_store_body off). In a Redis cluster records "
        "are "
        "not compressed and take more: docs/stores.md.\n",
        MEASURED);
    return ONCE__CLI_OK;
}

static json_t *json_of(const cost_t *cost, int *broken)
{
    once__cli_json_t json;

    once__cli_json_start(&json);
    once__cli_json_text(&json, "store", cost->of->store);
    once__cli_json_text(&json, "records", cost->of->mode);
    once__cli_json_real(&json, "bytes", cost->bytes);
    once__cli_json_real(&json, "disk_bytes", cost->disk_bytes);
    once__cli_json_real(&json, "memory_bytes", cost->memory_bytes);
    once__cli_json_real(&json, "written_bytes_per_day", cost->written_a_day);
    once__cli_json_real(&json, "cpu_cores", cost->caller_cores);
    once__cli_json_real(&json, "store_cpu_cores", cost->server_cores);
    *broken |= json.broken;
    return json.object;
}

static int print_json(const settings_t *set)
{
    once__cli_json_t json;
    json_t *stores = json_array();

    once__cli_json_start(&json);
    once__cli_json_number(&json, "rate", set->rate.value);
    once__cli_json_number(&json, "ttl_ms", set->ttl.value);
    once__cli_json_number(&json, "body", set->body.value);
    for (size_t i = 0; i < COUNT; i++) {
        cost_t cost = cost_of(&measured[i], set);
        if (is_wanted(set, &measured[i]) &&
            json_array_append_new(stores, json_of(&cost, &json.broken)) != 0) {
            json.broken = 1;
        }
    }
    once__cli_json_put(&json, "stores", stores);
    return once__cli_json_print(&json);
}

/* ------------------------------------------------------------------------------------------------------------ command */

static int check_stores(const once__cli_call_t *call, const settings_t *set)
{
    for (size_t i = 0; i < set->stores.count; i++) {
        size_t n = 0;
        while (n < COUNT && strcmp(measured[n].store, set->stores.items[i]) != 0) {
            n++;
        }
        if (n == COUNT) {
            return once__cli_usage(call->command, "--store must be local, postgres or redis");
        }
    }
    return ONCE__CLI_OK;
}

static int run_cost(const once__cli_call_t *call)
{
    settings_t set = *(const settings_t *)call->settings;
    int code = check_stores(call, &set);

    if (code != ONCE__CLI_OK) {
        return code;
    }
    if (!set.rate.given) {
        set.rate.value = RATE;
    }
    if (!set.ttl.given) {
        set.ttl.value = TTL_MS;
    }
    if (!set.body.given) {
        set.body.value = MEASURED;
    }
    if (set.rate.value == 0 || set.ttl.value == 0) {
        return once__cli_usage(call->command, "--rate and --ttl must be greater than 0");
    }
    if (set.body.value > BODY_MAX) {
        return once__cli_usage(call->command, "--body must be at most %d bytes", BODY_MAX);
    }
    return set.json ? print_json(&set) : print_text(&set);
}

/* clang-format off */
static const once__cli_option_t options[] = {
    {"rate", 0, ONCE__CLI_NUMBER, "N", "operations a second (default 10000)", offsetof(settings_t, rate)},
    {"ttl", 0, ONCE__CLI_DURATION, "TIME", "how long records are kept (default 24h)", offsetof(settings_t, ttl)},
    {"body", 0, ONCE__CLI_SIZE, "SIZE", "size of the responses (default 400)", offsetof(settings_t, body)},
    {"store", 0, ONCE__CLI_LIST, "NAME", "local, postgres or redis (default: all)", offsetof(settings_t, stores)},
    {"json", 0, ONCE__CLI_FLAG, NULL, "one JSON object", offsetof(settings_t, json)},
    {0},
};
/* clang-format on */

const once__cli_command_t once__cli_cost = {
    .name = "cost",
    .operands = "",
    .summary = "what records take in each store: space, memory, writes, CPU",
    .details =
        "Computed from figures that were measured; nothing is opened. DISK and MEMORY are what is "
        "kept\n"
        "when as many records expire as come, WRITTEN A DAY goes to disks. CPU is that of the\n"
        "gateway's side for claims and completions, beside that of the store's servers.\n",
    .store = ONCE__CLI_NO_STORE,
    .options = options,
    .settings_size = sizeof(settings_t),
    .run = run_cost,
};
