#include "cli/pg.h"

#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cli/file.h"
#include "cli/pg_sql.h"
#include "cli/text.h"
#include "pg/tls.h"

#define SQL_MAX (1 << 20)

/* -------------------------------------------------------------------------------------------------------------- SQL */

static int version_of(const char *name, const char *end)
{
    int version = 0;

    while (*name >= '0' && *name <= '9' && version < 100000) {
        version = version * 10 + (*name++ - '0');
    }
    return strcmp(name, end) == 0 ? version : 0;
}

int once__cli_pg_file_version(const char *name)
{
    return version_of(name, ".sql");
}

int once__cli_pg_before_version(const char *name)
{
    return version_of(name, "-before.sql");
}

static int by_name(const void *a, const void *b)
{
    const char *const *x = a, *const *y = b;

    return strcmp(*x, *y);
}

static int add_file(once__cli_pg_sql_t *sql, const char *directory, const char *name)
{
    char path[1024];
    once__cli_bytes_t bytes;
    int code;

    if (sql->count == ONCE__CLI_PG_FILES_MAX) {
        once__cli_say("more than %d files in %s", ONCE__CLI_PG_FILES_MAX, directory);
        return ONCE__CLI_USAGE;
    }
    snprintf(path, sizeof(path), "%s/%s", directory, name);
    code = once__cli_read_file(path, SQL_MAX, &bytes);
    if (code != ONCE__CLI_OK) {
        return code;
    }
    sql->memory[2 * sql->count] = bytes.data;
    sql->memory[2 * sql->count + 1] = strdup(name);
    sql->files[sql->count].text = bytes.data;
    sql->files[sql->count].name = sql->memory[2 * sql->count + 1];
    sql->count++;
    return sql->memory[2 * sql->count - 1] != NULL ? ONCE__CLI_OK : ONCE__CLI_STORE;
}

static int read_directory(once__cli_pg_sql_t *sql, const char *directory, const char *sub)
{
    char path[1024], name[300];
    const struct dirent *entry;
    int code = ONCE__CLI_OK;
    DIR *stream;

    snprintf(path, sizeof(path), "%s/%s", directory, sub);
    stream = opendir(path);
    if (stream == NULL) {
        once__cli_say("cannot read the directory %s", path);
        return ONCE__CLI_USAGE;
    }
    while (code == ONCE__CLI_OK && (entry = readdir(stream)) != NULL) {
        size_t len = strlen(entry->d_name);
        if (len > 4 && strcmp(entry->d_name + len - 4, ".sql") == 0) {
            snprintf(name, sizeof(name), "%s%s", sub, entry->d_name);
            code = add_file(sql, directory, name);
        }
    }
    closedir(stream);
    return code;
}

static void take_built_in(once__cli_pg_sql_t *sql)
{
    for (size_t i = 0; i < once__cli_pg_files_count && i < ONCE__CLI_PG_FILES_MAX; i++) {
        sql->files[i].name = once__cli_pg_files[i].name;
        sql->files[i].text = once__cli_pg_files[i].text;
        sql->count++;
    }
}

int once__cli_pg_sql_load(once__cli_pg_sql_t *sql, const char *directory)
{
    int code = ONCE__CLI_OK;

    memset(sql, 0, sizeof(*sql));
    if (directory == NULL) {
        take_built_in(sql);
    } else {
        code = read_directory(sql, directory, "");
        code = code == ONCE__CLI_OK ? read_directory(sql, directory, "functions/") : code;
    }
    qsort(sql->files, sql->count, sizeof(sql->files[0]), by_name);
    for (size_t i = 0; i < sql->count; i++) {
        int version = once__cli_pg_file_version(sql->files[i].name);
        sql->newest = version > sql->newest ? version : sql->newest;
    }
    return code;
}

void once__cli_pg_sql_free(once__cli_pg_sql_t *sql)
{
    for (size_t i = 0; i < sizeof(sql->memory) / sizeof(sql->memory[0]); i++) {
        free(sql->memory[i]);
    }
}

/* ------------------------------------------------------------------------------------------------------- connection */

static int is_libpq_keyword(const char *name, size_t len)
{
    PQconninfoOption *all = PQconndefaults();
    int found = 0;

    for (const PQconninfoOption *option = all; option != NULL && option->keyword != NULL;
         option++) {
        found |= strlen(option->keyword) == len && strncmp(option->keyword, name, len) == 0;
    }
    PQconninfoFree(all);
    return found;
}

char *once__cli_pg_libpq_url(const char *url)
{
    const char *query = strchr(url, '?');
    size_t len = query != NULL ? (size_t)(query - url) : strlen(url);
    char *out = calloc(1, strlen(url) + 2);
    char separator = '?';

    if (out == NULL) {
        return NULL;
    }
    memcpy(out, url, len);
    for (const char *at = query; at != NULL; at = strchr(at + 1, '&')) {
        size_t name = strcspn(at + 1, "=&"), whole = strcspn(at + 1, "&");
        if (is_libpq_keyword(at + 1, name)) {
            out[len++] = separator;
            memcpy(out + len, at + 1, whole);
            len += whole;
            separator = '&';
        }
    }
    return out;
}

/* Shows warnings only; notices are for the server's log. */
static void notice(void *data, const PGresult *result)
{
    const char *severity = PQresultErrorField(result, PG_DIAG_SEVERITY_NONLOCALIZED);
    const char *text = PQresultErrorField(result, PG_DIAG_MESSAGE_PRIMARY);

    if (severity != NULL && text != NULL && strcmp(severity, "WARNING") == 0) {
        once__cli_say("%s", text);
    }
}

void once__cli_pg_complain(PGconn *conn, const char *what)
{
    const char *text = conn != NULL ? PQerrorMessage(conn) : "out of memory";

    once__cli_say("%s: %.*s", what, (int)strcspn(text, "\n"), text);
}

int once__cli_pg_connect(const char *url, PGconn **conn)
{
    const char *keywords[] = {"dbname", "client_encoding", NULL, NULL, NULL},
               *values[] = {NULL, "UTF8", NULL, NULL, NULL};
    once__pg_tls_t tls;
    char *text;

    *conn = NULL;
    if (strncmp(url, "postgres://", 11) != 0 && strncmp(url, "postgresql://", 13) != 0) {
        once__cli_say("this command needs a PostgreSQL store: postgres://...");
        return ONCE__CLI_USAGE;
    }
    text = once__cli_pg_libpq_url(url);
    if (text == NULL) {
        once__cli_pg_complain(NULL, "cannot connect");
        return ONCE__CLI_STORE;
    }
    values[0] = text;
    once__pg_tls_add(&tls, keywords, values);
    *conn = PQconnectdbParams(keywords, values, 1);
    free(text);
    if (*conn == NULL || PQstatus(*conn) != CONNECTION_OK) {
        const char *why = *conn != NULL ? PQerrorMessage(*conn) : "out of memory";
        once__cli_say("cannot connect: %.*s%s", (int)strcspn(why, "\n"), why,
                      once__pg_tls_advice(&tls, why));
        PQfinish(*conn);
        *conn = NULL;
        return ONCE__CLI_STORE;
    }
    PQsetNoticeReceiver(*conn, notice, NULL);
    return ONCE__CLI_OK;
}

int once__cli_pg_run(PGconn *conn, const char *what, const char *statements)
{
    PGresult *result = PQexec(conn, statements);
    ExecStatusType status = PQresultStatus(result);
    int good = status == PGRES_COMMAND_OK || status == PGRES_TUPLES_OK;

    if (!good) {
        once__cli_pg_complain(conn, what);
    }
    PQclear(result);
    return good ? 0 : -1;
}

int once__cli_pg_begin(PGconn *conn)
{
    return once__cli_pg_run(conn, "cannot begin a transaction",
                            "BEGIN; SET LOCAL search_path = pg_catalog, pg_temp");
}

char *once__cli_pg_ask(PGconn *conn, const char *query)
{
    PGresult *result = PQexec(conn, query);
    char *text = NULL;

    if (PQresultStatus(result) != PGRES_TUPLES_OK) {
        once__cli_pg_complain(conn, "cannot query the server");
    } else if (PQntuples(result) > 0) {
        text = strdup(PQgetvalue(result, 0, 0));
    }
    PQclear(result);
    return text;
}

int once__cli_pg_version(PGconn *conn)
{
    char *there = once__cli_pg_ask(conn, "SELECT count(*) FROM pg_catalog.pg_tables "
                                         "WHERE schemaname = 'once' AND tablename = 'versions'");
    char *text;
    int version;

    if (there == NULL || strcmp(there, "0") == 0) {
        version = there == NULL ? -1 : 0;
        free(there);
        return version;
    }
    free(there);
    text = once__cli_pg_ask(conn, "SELECT coalesce(max(version), 0) FROM once.versions");
    version = text != NULL ? (int)strtol(text, NULL, 10) : -1;
    free(text);
    return version;
}
