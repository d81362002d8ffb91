/*
 * What a check saw, for people, as JSON and as JUnit's XML. Credentials are replaced wherever they stand, also where an answer
 * repeats them; control bytes are escaped.
 */
#include "judge/internal.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "cli/json.h"
#include "cli/text.h"

#define HIDDEN      "[hidden]"
#define BODY_SHOWN  600
#define BODY_JSON   4096
#define WHOLE_SHOWN 4 /* exchanges of a failed check that are shown whole */
#define LINE_SIZE   700

const char *const once__judge_verdict_names[] = {
    [ONCE__JUDGE_PASS] = "pass",
    [ONCE__JUDGE_FAIL] = "fail",
    [ONCE__JUDGE_NOT_JUDGED] = "not judged",
};

/* ------------------------------------------------------------------------------------------------------------ shown */

/* The length of the secret that begins at `at`; 0: none does. */
static size_t secret_at(const once__judge_t *judge, const char *at, size_t left)
{
    size_t longest = 0;

    for (size_t i = 0; i < judge->secret_count; i++) {
        size_t len = strlen(judge->secrets[i]);
        if (len <= left && len > longest && memcmp(at, judge->secrets[i], len) == 0) {
            longest = len;
        }
    }
    return longest;
}

/* The bytes with secrets replaced, as they are otherwise. NULL: out of memory. */
static char *mask(const once__judge_t *judge, once_slice_t bytes, size_t *len)
{
    once__buf_t out = ONCE__BUF(2 * ONCE__JUDGE_ANSWER_MAX);
    const char *data = bytes.data;

    for (size_t i = 0; i < bytes.len;) {
        size_t secret = secret_at(judge, data + i, bytes.len - i);
        if (secret > 0) {
            once__buf_add(&out, HIDDEN, strlen(HIDDEN));
            i += secret;
        } else {
            once__buf_add(&out, data + i, 1);
            i++;
        }
    }
    once__buf_add(&out, "", 0);
    *len = out.len;
    return bytes.len > 0 ? once__buf_take(&out) : strdup("");
}

char *once__judge_shown(const once__judge_t *judge, once_slice_t bytes, size_t max)
{
    size_t len = 0;
    char *masked, *shown = malloc(max + 1);

    /* A body may be large: no more is masked than can be shown, and a secret that the end cuts through. */
    bytes.len = bytes.len < 2 * max + 4096 ? bytes.len : 2 * max + 4096;
    masked = mask(judge, bytes, &len);
    if (masked == NULL || shown == NULL) {
        free(masked);
        free(shown);
        return NULL;
    }
    once__cli_escape(shown, max + 1, (once_slice_t){masked, len});
    free(masked);
    return shown;
}

static void print_shown(const once__judge_t *judge, const char *before, once_slice_t bytes,
                        size_t max)
{
    char *shown = once__judge_shown(judge, bytes, max);

    printf("%s%s\n", before, shown != NULL ? shown : "");
    free(shown);
}

static once_slice_t text(const char *words)
{
    return (once_slice_t){words, strlen(words)};
}

/* ------------------------------------------------------------------------------------------------------- for people */

/* One exchange on one line. */
static void describe(const once__judge_t *judge, const once__judge_exchange_t *exchange,
                     char line[LINE_SIZE])
{
    const once__judge_request_t *request = &exchange->request;
    const char *mark = once__judge_mark(&exchange->answer);
    size_t used;

    used = (size_t)snprintf(line, LINE_SIZE, "%s", judge->method);
    if (request->key == NULL) {
        used += (size_t)snprintf(line + used, LINE_SIZE - used, ", no key");
    } else {
        used += (size_t)snprintf(line + used, LINE_SIZE - used, ", key %s%s%s",
                                 request->key[0] != '\0' ? request->key : "(empty)",
                                 request->key_again != NULL ? " and " : "",
                                 request->key_again != NULL ? request->key_again : "");
    }
    snprintf(line + used, LINE_SIZE - used, "%s, %zu bytes -> %s%s%s",
             request->other ? ", second credential" : "", request->body.len,
             once__judge_status(&exchange->answer), mark != NULL ? ", " : "",
             mark != NULL ? mark : "");
}

/* Equal lines in a row become one. */
static void print_lines(const once__judge_t *judge, const once__judge_result_t *result)
{
    char line[LINE_SIZE], next[LINE_SIZE];

    for (size_t i = 0; i < result->exchange_count;) {
        size_t same = 1;
        describe(judge, &result->exchanges[i], line);
        for (; i + same < result->exchange_count; same++) {
            describe(judge, &result->exchanges[i + same], next);
            if (strcmp(line, next) != 0) {
                break;
            }
        }
        printf("            ");
        if (same > 1) {
            printf("%zu x ", same);
        }
        print_shown(judge, "", text(line), LINE_SIZE);
        i += same;
    }
}

static void print_request(const once__judge_t *judge, const once__judge_request_t *request)
{
    char line[ONCE__JUDGE_KEY_SIZE + 128];

    printf("          > %s %s\n", judge->method, judge->shown_url);
    for (char **header = judge->header_lines; header != NULL && *header != NULL; header++) {
        if (!(request->type != NULL && once__judge_line_is(*header, "content-type"))) {
            print_shown(judge, "          > ", text(*header), LINE_SIZE);
        }
    }
    if (request->other) {
        printf("          > (with the headers of --other-header)\n");
    }
    if (request->type != NULL || judge->type != NULL) {
        printf("          > Content-Type: %s\n",
               request->type != NULL ? request->type : judge->type);
    }
    for (int i = 0; i < 2; i++) {
        const char *key = i == 0 ? request->key : request->key_again;
        if (key != NULL) {
            snprintf(line, sizeof(line), "%.100s: %s", judge->key_header, key);
            print_shown(judge, "          > ", text(line), sizeof(line));
        }
    }
    if (request->body.len > 0) {
        print_shown(judge, "          >\n          > ", request->body, BODY_SHOWN);
    }
}

/* Cookies are credentials, too. */
static int is_hidden(const char *line)
{
    return once__judge_line_is(line, "set-cookie");
}

static void print_answer(const once__judge_t *judge, const once__judge_answer_t *answer)
{
    printf("          < ");
    print_shown(judge, "", text(once__judge_status(answer)), LINE_SIZE);
    for (const char *at = answer->head.data; at != NULL && *at != '\0';) {
        size_t len = strcspn(at, "\r\n");
        if (is_hidden(at)) {
            printf("          < Set-Cookie: " HIDDEN "\n");
        } else {
            print_shown(judge, "          < ", (once_slice_t){at, len}, LINE_SIZE);
        }
        at += len;
        at += strspn(at, "\r\n");
    }
    if (answer->body.len > 0) {
        print_shown(judge, "          <\n          < ",
                    (once_slice_t){answer->body.data, answer->body.len}, BODY_SHOWN);
    }
}

/* Of many exchanges: the first, and the first that was answered otherwise. */
static int is_shown_whole(const once__judge_result_t *result, size_t number)
{
    if (result->exchange_count <= WHOLE_SHOWN || number == 0) {
        return 1;
    }
    for (size_t i = 1; i < number; i++) {
        if (!once__judge_is_same(&result->exchanges[0].answer, &result->exchanges[i].answer)) {
            return 0;
        }
    }
    return !once__judge_is_same(&result->exchanges[0].answer, &result->exchanges[number].answer);
}

void once__judge_print_result(const once__judge_t *judge, const once__judge_result_t *result)
{
    static const char *const words[] = {"pass", "FAIL", "not judged"};
    const once__judge_check_t *check = result->check;

    printf("%-10s  %s: %s [%s%s%s]\n", words[result->verdict], check->name, check->what,
           check->level, check->section[0] != '\0' ? " " : "", check->section);
    print_shown(judge, "            ", text(result->why), sizeof(result->why));
    print_lines(judge, result);
    for (size_t i = 0; result->verdict == ONCE__JUDGE_FAIL && i < result->exchange_count; i++) {
        if (is_shown_whole(result, i)) {
            print_request(judge, &result->exchanges[i].request);
            print_answer(judge, &result->exchanges[i].answer);
        }
    }
}

/* ------------------------------------------------------------------------------------------------------------- JSON */

static json_t *json_shown(const once__judge_t *judge, once_slice_t bytes, size_t max)
{
    char *shown = once__judge_shown(judge, bytes, max);
    json_t *json = shown != NULL ? json_string(shown) : NULL;

    free(shown);
    return json;
}

/* Lines as an array of strings. */
static json_t *json_head(const once__judge_t *judge, const once__judge_answer_t *answer)
{
    json_t *lines = json_array();

    for (const char *at = answer->head.data; at != NULL && *at != '\0';) {
        size_t len = strcspn(at, "\r\n");
        json_array_append_new(lines, is_hidden(at)
                                         ? json_string("Set-Cookie: " HIDDEN)
                                         : json_shown(judge, (once_slice_t){at, len}, LINE_SIZE));
        at += len;
        at += strspn(at, "\r\n");
    }
    return lines;
}

static json_t *json_exchange(const once__judge_t *judge, const once__judge_exchange_t *exchange)
{
    const once__judge_request_t *request = &exchange->request;
    const once__judge_answer_t *answer = &exchange->answer;
    once__cli_json_t made, sent, got;
    once_slice_t body = {answer->body.data, answer->body.len};

    once__cli_json_start(&made);
    once__cli_json_start(&sent);
    once__cli_json_start(&got);
    once__cli_json_text(&sent, "method", judge->method);
    once__cli_json_put(&sent, "key",
                       request->key != NULL ? json_string(request->key) : json_null());
    if (request->key_again != NULL) {
        once__cli_json_put(&sent, "key_again", json_string(request->key_again));
    }
    once__cli_json_bool(&sent, "second_credential", request->other);
    once__cli_json_number(&sent, "body_bytes", request->body.len);
    once__cli_json_put(&sent, "body", json_shown(judge, request->body, BODY_JSON));
    if (answer->status != 0) {
        once__cli_json_number(&got, "status", (uint64_t)answer->status);
        once__cli_json_put(&got, "headers", json_head(judge, answer));
        once__cli_json_number(&got, "body_bytes", answer->body.len);
        once__cli_json_put(&got, "body", json_shown(judge, body, BODY_JSON));
    } else {
        once__cli_json_put(&got, "trouble", json_shown(judge, text(answer->trouble), LINE_SIZE));
    }
    once__cli_json_nest(&made, "request", &sent);
    once__cli_json_nest(&made, "response", &got);
    if (made.broken) {
        json_decref(made.object);
        return NULL;
    }
    return made.object;
}

static json_t *json_result(const once__judge_t *judge, const once__judge_result_t *result)
{
    json_t *exchanges = json_array();
    once__cli_json_t made;

    for (size_t i = 0; i < result->exchange_count; i++) {
        json_array_append_new(exchanges, json_exchange(judge, &result->exchanges[i]));
    }
    once__cli_json_start(&made);
    once__cli_json_text(&made, "name", result->check->name);
    once__cli_json_text(&made, "level", result->check->level);
    once__cli_json_text(&made, "section", result->check->section);
    once__cli_json_text(&made, "what", result->check->what);
    once__cli_json_text(&made, "verdict", once__judge_verdict_names[result->verdict]);
    once__cli_json_put(&made, "why", json_shown(judge, text(result->why), sizeof(result->why)));
    if (result->effects >= 0) {
        once__cli_json_number(&made, "effects", (uint64_t)result->effects);
    }
    once__cli_json_put(&made, "exchanges", exchanges);
    if (made.broken) {
        json_decref(made.object);
        return NULL;
    }
    return made.object;
}

int once__judge_print_json(const once__judge_t *judge, const once__judge_result_t *results,
                           size_t count)
{
    static const char *const members[] = {"passed", "failed", "not_judged"};
    json_t *checks = json_array();
    size_t sums[3] = {0};
    once__cli_json_t made;

    for (size_t i = 0; i < count; i++) {
        sums[results[i].verdict]++;
        json_array_append_new(checks, json_result(judge, &results[i]));
    }
    once__cli_json_start(&made);
    once__cli_json_text(&made, "url", judge->shown_url);
    once__cli_json_text(&made, "profile", judge->profile->name);
    once__cli_json_text(&made, "keys", judge->prefix);
    once__cli_json_number(&made, "requests", judge->requests);
    for (size_t i = 0; i < 3; i++) {
        once__cli_json_number(&made, members[i], sums[i]);
    }
    made.broken |= json_array_size(checks) != count;
    once__cli_json_put(&made, "checks", checks);
    return once__cli_json_print(&made) == ONCE__CLI_OK ? 0 : -1;
}

/* ------------------------------------------------------------------------------------------------------------ JUnit */

/* What was shown is printable ASCII: only XML's own characters are left to escape. */
static void write_xml(FILE *file, const char *words)
{
    for (; *words != '\0'; words++) {
        switch (*words) {
        case '&':
            fputs("&amp;", file);
            break;
        case '<':
            fputs("&lt;", file);
            break;
        case '>':
            fputs("&gt;", file);
            break;
        case '"':
            fputs("&quot;", file);
            break;
        default:
            fputc(*words, file);
        }
    }
}

static void write_shown(const once__judge_t *judge, FILE *file, const char *words)
{
    char *shown = once__judge_shown(judge, text(words), LINE_SIZE);

    write_xml(file, shown != NULL ? shown : "");
    free(shown);
}

static void write_case(const once__judge_t *judge, const once__judge_result_t *result, FILE *file)
{
    char line[LINE_SIZE];

    fprintf(file,
            "  <testcase classname=\"once.conformance.%s\" name=\"%s\" time=\"%llu.%03llu\">\n",
            judge->profile->name, result->check->name, (unsigned long long)(result->took_ms / 1000),
            (unsigned long long)(result->took_ms % 1000));
    if (result->verdict != ONCE__JUDGE_PASS) {
        fprintf(file, "    <%s message=\"",
                result->verdict == ONCE__JUDGE_FAIL ? "failure" : "skipped");
        write_shown(judge, file, result->why);
        fprintf(file, "\"/>\n");
    }
    fprintf(file, "    <system-out>");
    write_xml(file, result->check->what);
    for (size_t i = 0; i < result->exchange_count; i++) {
        describe(judge, &result->exchanges[i], line);
        fputc('\n', file);
        write_shown(judge, file, line);
    }
    fprintf(file, "</system-out>\n  </testcase>\n");
}

int once__judge_write_junit(const once__judge_t *judge, const once__judge_result_t *results,
                            size_t count, const char *path)
{
    FILE *file = fopen(path, "we");
    size_t failed = 0, skipped = 0;
    int bad;

    if (file == NULL) {
        once__cli_say("%s: %s", once__cli_shown(path).text, strerror(errno));
        return -1;
    }
    for (size_t i = 0; i < count; i++) {
        failed += results[i].verdict == ONCE__JUDGE_FAIL;
        skipped += results[i].verdict == ONCE__JUDGE_NOT_JUDGED;
    }
    fprintf(
        file,
        "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n"
        "<testsuite name=\"once conformance\" tests=\"%zu\" failures=\"%zu\" skipped=\"%zu\">\n",
        count, failed, skipped);
    for (size_t i = 0; i < count; i++) {
        write_case(judge, &results[i], file);
    }
    fprintf(file, "</testsuite>\n");
    bad = ferror(file);
    bad |= fclose(file) != 0;
    if (bad) {
        once__cli_say("%s could not be written", once__cli_shown(path).text);
    }
    return bad ? -1 : 0;
}
