#include "load.h"

#include <dirent.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/bytes.h"
#include "cost.h"
#include "store/local/directory.h"

#define BODIES       4096
#define SIMILAR_SIZE 400

const char *const load_kind_names[3] = {"400 bytes of similar JSON", "2 KiB of mixed JSON",
                                        "2 KiB incompressible"};

static void die(const char *what, const char *why)
{
    (void)fprintf(stderr, "bench_local: %s: %s\n", what, why);
    exit(2);
}

/* ---------------------------------------------------------------------------------------------------- keys and bodies */

uint64_t load_mix(uint64_t n)
{
    n = (n ^ n >> 30) * 0xbf58476d1ce4e5b9u;
    n = (n ^ n >> 27) * 0x94d049bb133111ebu;
    return n ^ n >> 31;
}

void load_key(char out[LOAD_KEY_SIZE], uint64_t n)
{
    static const char digits[] = "0123456789abcdef";
    uint64_t words[2] = {load_mix(n * 2 + 1), load_mix(n * 2 + 2)};

    for (unsigned i = 0, nibble = 0; i < LOAD_KEY_SIZE - 1; i++) {
        if (i == 8 || i == 13 || i == 18 || i == 23) {
            out[i] = '-';
        } else {
            out[i] = digits[words[nibble / 16] >> nibble % 16 * 4 & 15];
            nibble++;
        }
    }
    out[LOAD_KEY_SIZE - 1] = '\0';
}

/* A charge as a payment service answers it. */
static size_t similar(char *out, uint64_t n)
{
    uint64_t a = load_mix(n * 2 + 1000001), b = load_mix(n * 2 + 1000002);
    int len = snprintf(
        out, LOAD_BODY_MAX,
        "{\"id\":\"ch_%016llx\",\"object\":\"charge\",\"amount\":%llu,\"currency\":\"eur\","
        "\"status\":\"succeeded\",\"created\":%llu,\"customer\":\"cus_%010llx\",\"paid\":true,"
        "\"refunded\":false,\"captured\":true,\"description\":\"Order %llu\",\"livemode\":true,"
        "\"payment_method\":{\"type\":\"card\",\"brand\":\"%s\",\"last4\":\"%04llu\",\"exp_month\":"
        "%llu,"
        "\"exp_year\":20%llu},\"receipt_url\":\"https://pay.example.com/receipts/%012llx\"",
        (unsigned long long)a, (unsigned long long)(b % 100000),
        (unsigned long long)(1780000000 + n / 50), (unsigned long long)(b >> 24),
        (unsigned long long)(100000 + n), b & 1 ? "visa" : "mastercard",
        (unsigned long long)(a % 10000), (unsigned long long)(a % 12 + 1),
        (unsigned long long)(27 + b % 6), (unsigned long long)(a >> 16));

    for (; len < SIMILAR_SIZE - 1; len++) {
        out[len] = ' '; /* as printers of JSON do it: the length is what is wanted */
    }
    out[SIMILAR_SIZE - 1] = '}';
    return SIMILAR_SIZE;
}

static const char *const words[] = {
    "account", "address", "amount",  "balance",  "batch",    "blue",     "carrier", "city",
    "code",    "comment", "country", "customer", "date",     "deliver",  "dispute", "email",
    "express", "fee",     "green",   "house",    "invoice",  "item",     "label",   "large",
    "line",    "market",  "medium",  "name",     "net",      "note",     "number",  "order",
    "parcel",  "payment", "phone",   "postal",   "price",    "quantity", "red",     "reference",
    "refund",  "return",  "rose",    "shipping", "size",     "small",    "status",  "street",
    "summer",  "tax",     "ticket",  "total",    "tracking", "unit",     "weight",  "winter"};

static size_t mixed(char *out, uint64_t n)
{
    size_t len = 1, count = sizeof(words) / sizeof(words[0]);
    uint64_t random = load_mix(n + 21);

    out[0] = '{';
    while (len < LOAD_BODY_MAX - 120) {
        random = load_mix(random + len);
        len += (size_t)snprintf(out + len, LOAD_BODY_MAX - len,
                                "\"%s_%s\":%s%llu%s,\"%s\":\"%s %s of the %s %llx\",",
                                words[random % count], words[random >> 8 & 31],
                                random & 1 ? "" : "\"", (unsigned long long)(random >> 40),
                                random & 1 ? "" : "\"", words[(random >> 16) % count],
                                words[(random >> 20) % count], words[(random >> 24) % count],
                                words[(random >> 28) % count], (unsigned long long)(random >> 34));
    }
    memset(out + len, ' ', LOAD_BODY_MAX - len);
    memcpy(out + len - 1, "}", 1);
    return LOAD_BODY_MAX;
}

static size_t incompressible(char *out, uint64_t n)
{
    for (unsigned i = 0; i < LOAD_BODY_MAX; i += 8) {
        uint64_t word = load_mix(n * LOAD_BODY_MAX + i);
        memcpy(out + i, &word, 8);
    }
    return LOAD_BODY_MAX;
}

once_slice_t load_body(load_kind_t kind, uint64_t n)
{
    static size_t (*const make[])(char *, uint64_t) = {similar, mixed, incompressible};
    static char *tables[3];
    once_slice_t body;

    if (tables[kind] == NULL) {
        tables[kind] = malloc((size_t)BODIES * LOAD_BODY_MAX);
        if (tables[kind] == NULL) {
            die("bodies", "out of memory");
        }
        for (unsigned i = 0; i < BODIES; i++) {
            (void)make[kind](tables[kind] + (size_t)i * LOAD_BODY_MAX, i);
        }
    }
    body.data = tables[kind] + n % BODIES * LOAD_BODY_MAX;
    body.len = kind == LOAD_SIMILAR ? SIMILAR_SIZE : LOAD_BODY_MAX;
    return body;
}

/* ------------------------------------------------------------------------------------------------------------ the loop */

static void ask_next(load_t *load);

static void completed(once_t *once, once_answer_t *answer, void *data)
{
    load_t *load = data;

    load->failed += once_answer_outcome(answer) != ONCE_OUTCOME_DONE;
    load->running--;
    ask_next(load);
}

static void answered(once_t *once, once_answer_t *answer, void *data)
{
    static const once_header_t header = {{"content-type", 12}, {"application/json", 16}};
    once_response_t response = ONCE_RESPONSE_INIT;
    load_t *load = data;
    once_claim_t *claim = once_answer_take_claim(answer);
    int busy = load->shared != 0 && once_answer_outcome(answer) == ONCE_OUTCOME_BUSY;

    if (claim == NULL || load->claims_only) {
        once_claim_drop(claim);
        load->failed += claim == NULL && !busy;
        load->running--;
        ask_next(load);
        return;
    }
    if (load->shared != 0) {
        if (once_claim_release(claim, 503, once__slice_of("try again"), completed, load) !=
            ONCE_OK) {
            load->failed++;
            load->running--;
        }
        return;
    }
    response.status = 201;
    response.headers = &header;
    response.header_count = 1;
    response.body_omitted = load->light;
    if (!load->light) {
        response.body = load_body(load->kind, load->bodies++);
    }
    if (once_claim_complete(claim, &response, completed, load) != ONCE_OK) {
        load->failed++;
        load->running--;
    }
}

once_ask_t load_ask(char key[LOAD_KEY_SIZE], uint64_t n)
{
    once_ask_t ask = ONCE_ASK_INIT;

    load_key(key, n);
    ask.key.data = key;
    ask.key.len = LOAD_KEY_SIZE - 1;
    ask.scope.data = "tenant-17";
    ask.scope.len = 9;
    ask.method.data = "POST";
    ask.method.len = 4;
    ask.target.data = "/v1/payments";
    ask.target.len = 12;
    ask.description.data = "POST /v1/payments";
    ask.description.len = 17;
    ask.bytes.data = "{\"amount\":\"19.99\"}";
    ask.bytes.len = 18;
    ask.description.data = "POST /v1/payments";
    ask.description.len = 17;
    return ask;
}

static void ask_next(load_t *load)
{
    char key[LOAD_KEY_SIZE];
    once_ask_t ask;

    if (load->left == 0) {
        return;
    }
    ask = load_ask(key, load->shared != 0 ? load_mix(load->next) % load->shared : load->next);
    load->next++;
    load->left--;
    if (once_begin(load->once, &ask, answered, load) == ONCE_OK) {
        load->running++;
    } else {
        load->failed++;
    }
}

void load_open(load_t *load, const char *path, const char *parameters)
{
    char url[1024];
    once_error_t err;

    (void)snprintf(url, sizeof(url), "local:%s%s", path, parameters);
    if (once_open(url, NULL, &load->once, &err) != ONCE_OK) {
        die(url, err.text);
    }
}

void load_close(load_t *load)
{
    if (once_close(load->once, -1) != ONCE_OK) {
        die("closing", "not everything was written");
    }
    load->once = NULL;
}

int load_index(char out[LOAD_INDEX_ROOM], const char *path)
{
    char begin[2 * ONCE__STORE_ID_SIZE + 8] = "once-";
    const char *directory = once__index_default_directory();
    int fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC), found = -1;
    uint8_t id[ONCE__STORE_ID_SIZE];
    DIR *stream = directory != NULL ? opendir(directory) : NULL;
    const struct dirent *entry;

    if (fd >= 0 && once__format_read(fd, id) == ONCE__FORMAT_OURS) {
        once__hex(begin + 5, id, sizeof(id));
        while (stream != NULL && found != 0 && (entry = readdir(stream)) != NULL) {
            if (strncmp(entry->d_name, begin, strlen(begin)) == 0) {
                (void)snprintf(out, LOAD_INDEX_ROOM, "%s/%s", directory, entry->d_name);
                found = 0;
            }
        }
    }
    if (stream != NULL) {
        (void)closedir(stream);
    }
    if (fd >= 0) {
        (void)close(fd);
    }
    return found;
}

void load_remove(const char *path)
{
    char index[LOAD_INDEX_ROOM];

    if (load_index(index, path) == 0) {
        (void)unlink(index);
    }
    remove_tree(path);
}

void load_run(load_t *load, uint64_t pairs, unsigned inflight)
{
    load->left = pairs;
    for (unsigned i = 0; i < inflight; i++) {
        ask_next(load);
    }
    while (load->running > 0) {
        (void)once_wait(load->once, -1);
    }
    if (load->failed > 0) {
        die("claims and completions", "some were not answered run and done");
    }
}
