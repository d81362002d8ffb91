#include "cli/config.h"

#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/buf.h"
#include "cli/file.h"
#include "cli/text.h"

#define FILE_MAX  ((size_t)(256 * 1024))
#define WORDS_MAX ((size_t)4096)
#define VALUE_MAX ((size_t)(16 * 1024))
#define VARIABLE  "CREDENTIALS_DIRECTORY"
#define SPACE     " \t\r"

const char *once__cli_config_named(const once__cli_command_t *command, int argc, char **argv)
{
    const char *path = NULL;
    char letter[3] = "-";
    int has = 0;

    for (const once__cli_option_t *o = command->options; o != NULL && o->name != NULL; o++) {
        if (strcmp(o->name, "config") == 0) {
            has = 1;
            letter[1] = o->letter;
        }
    }
    for (int i = 0; has && i < argc && strcmp(argv[i], "--") != 0; i++) {
        if (strncmp(argv[i], "--config=", 9) == 0) {
            path = argv[i] + 9;
        } else if (strcmp(argv[i], "--config") == 0 || strcmp(argv[i], letter) == 0) {
            path = i + 1 < argc ? argv[i + 1] : path;
        }
    }
    return path;
}

static const once__cli_option_t *option_named(const once__cli_command_t *command, const char *name)
{
    for (const once__cli_option_t *o = command->options; o != NULL && o->name != NULL; o++) {
        if (strcmp(o->name, name) == 0) {
            return o;
        }
    }
    return NULL;
}

/* Which operand of the usage ("[FROM] [TO]") has this name; -1: none. A URL is that of a store. */
static int operand_named(const once__cli_command_t *command, const char *name)
{
    const char *at = command->operands;
    char word[32];

    for (int i = 0; i < ONCE__CLI_CONFIG_OPERANDS; i++) {
        size_t len = 0;
        at += strspn(at, " []");
        while (isupper((unsigned char)at[len]) && len + 1 < sizeof(word)) {
            word[len] = (char)tolower((unsigned char)at[len]);
            len++;
        }
        if (len == 0) {
            return -1;
        }
        word[len] = '\0';
        if (strcmp(strcmp(word, "url") == 0 ? "store" : word, name) == 0) {
            return i;
        }
        at += len;
    }
    return -1;
}

static int wrong(const char *path, unsigned line, const char *what)
{
    once__cli_say("%s, line %u: %s", once__cli_shown(path).text, line, what);
    return ONCE__CLI_USAGE;
}

/* The value with the folder of the credentials in it. Returns 0, or -1 after an error message. */
static int expand(const char *path, unsigned line, const char *value, once__buf_t *out)
{
    static const char variable[] = "${" VARIABLE "}";
    const char *folder = getenv(VARIABLE);
    const char *found;

    while ((found = strstr(value, variable)) != NULL) {
        if (folder == NULL) {
            wrong(path, line,
                  VARIABLE " is not set: systemd sets it for units with LoadCredential=");
            return -1;
        }
        once__buf_add(out, value, (size_t)(found - value));
        once__buf_add(out, folder, strlen(folder));
        value = found + sizeof(variable) - 1;
    }
    once__buf_add(out, value, strlen(value));
    if (out->error != ONCE_OK) {
        wrong(path, line, "the value is too long");
        return -1;
    }
    return 0;
}

/* Replaces `@FILE` by the first line of that file. */
static int take_file(const char *path, unsigned line, once__buf_t *value)
{
    const char *name = value->data + 1;
    const char *folder = getenv(VARIABLE);
    char whole[4096];
    once__cli_bytes_t bytes = {0};
    size_t len;

    snprintf(whole, sizeof(whole), "%s%s%s",
             strchr(name, '/') == NULL && folder != NULL ? folder : "",
             strchr(name, '/') == NULL && folder != NULL ? "/" : "", name);
    if (once__cli_read_file(whole, VALUE_MAX, &bytes) != ONCE__CLI_OK) {
        wrong(path, line, "the file of this value cannot be read");
        return ONCE__CLI_STORE;
    }
    len = strcspn(bytes.data, "\r\n");
    once__buf_reset(value, VALUE_MAX);
    once__buf_add(value, bytes.data, len);
    once__cli_bytes_free(&bytes);
    return value->error == ONCE_OK ? 0 : wrong(path, line, "out of memory");
}

/* Adds `--name=value`. Returns 0 or -1: memory, or too many. */
static int add_word(once__cli_config_t *config, const char *name, const char *value, unsigned line)
{
    size_t size = strlen(name) + (value != NULL ? strlen(value) + 1 : 0) + 3;
    void *words = once__grow(config->words, &config->room, config->count + 1,
                             sizeof(config->words[0]), WORDS_MAX);
    char *text = words != NULL ? malloc(size) : NULL;

    config->words = words != NULL ? words : config->words;
    if (text == NULL) {
        return -1;
    }
    snprintf(text, size, "--%s%s%s", name, value != NULL ? "=" : "", value != NULL ? value : "");
    config->words[config->count].text = text;
    config->words[config->count++].line = line;
    return 0;
}

/* Takes a name and its value, which is "" for none. */
static int take_pair(const once__cli_command_t *command, const char *path, unsigned line,
                     const char *name, const char *value, once__cli_config_t *config)
{
    const once__cli_option_t *option = option_named(command, name);
    int operand = option == NULL ? operand_named(command, name) : -1;

    if (option != NULL && strcmp(name, "config") == 0) {
        return wrong(path, line, "a configuration does not read another one");
    }
    if (operand < 0) {
        /* A name that no option has is reported as on the command line, with what was perhaps meant. */
        int has_value = value[0] != '\0' || (option != NULL && option->kind != ONCE__CLI_FLAG);
        return add_word(config, name, has_value ? value : NULL, line) == 0
                   ? 0
                   : wrong(path, line, "too many options, or out of memory");
    }
    if (config->operands[operand] != NULL || value[0] == '\0') {
        return wrong(path, line, value[0] == '\0' ? "a value is missing" : "this was given before");
    }
    config->operands[operand] = strdup(value);
    return config->operands[operand] != NULL ? 0 : wrong(path, line, "out of memory");
}

/* One line, without its end; it is cut into pieces. */
static int take_line(const once__cli_command_t *command, const char *path, unsigned line,
                     char *text, once__cli_config_t *config)
{
    once__buf_t value = ONCE__BUF(VALUE_MAX);
    char *name = text + strspn(text, SPACE);
    size_t len = strcspn(name, SPACE);
    char *rest = name + len + strspn(name + len, SPACE);
    size_t end = strlen(rest);
    int code = 0;

    if (name[0] == '\0' || name[0] == '#') {
        return 0;
    }
    while (end > 0 && strchr(SPACE, rest[end - 1]) != NULL) {
        end--;
    }
    rest[end] = '\0';
    name[len] = '\0';
    if (name[0] == '-' || strchr(name, '=') != NULL) {
        return wrong(path, line,
                     "write a name without dashes, a space and its value: upstream 3000");
    }
    if (expand(path, line, rest, &value) != 0) {
        code = ONCE__CLI_USAGE;
    } else if (value.len > 1 && value.data[0] == '@') {
        code = take_file(path, line, &value);
    }
    if (code == 0) {
        code = take_pair(command, path, line, name, value.data != NULL ? value.data : "", config);
    }
    once__buf_free(&value);
    return code;
}

int once__cli_config_read(const once__cli_command_t *command, const char *path,
                          once__cli_config_t *config)
{
    once__cli_bytes_t bytes = {0};
    int code = once__cli_read_file(path, FILE_MAX, &bytes);
    char *rest = bytes.data;
    char *text;

    memset(config, 0, sizeof(*config));
    if (code == ONCE__CLI_OK && strlen(bytes.data) != bytes.len) {
        code = wrong(path, 1, "this is not a text file");
    }
    for (unsigned line = 1; code == 0 && (text = strsep(&rest, "\n")) != NULL; line++) {
        code = take_line(command, path, line, text, config);
    }
    once__cli_bytes_free(&bytes);
    return code;
}

void once__cli_config_free(once__cli_config_t *config)
{
    for (size_t i = 0; i < config->count; i++) {
        free(config->words[i].text);
    }
    for (size_t i = 0; i < ONCE__CLI_CONFIG_OPERANDS; i++) {
        free(config->operands[i]);
    }
    free(config->words);
    memset(config, 0, sizeof(*config));
}
