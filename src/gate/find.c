/*
 * once gate: nginx, the module and other files.
 */
#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "cli/text.h"
#include "gate/internal.h"

#define MODULE "ngx_http_once_module.so"

/* An ordinary user's PATH lacks the folders of programs for administrators. */
#define MORE_PATHS "/usr/local/sbin:/usr/sbin:/sbin:/usr/local/nginx/sbin:/opt/nginx/sbin"

int once__gate_find_file(const char *what, const char *name, char path[ONCE__GATE_PATH_SIZE])
{
    char whole[PATH_MAX];

    if (realpath(name, whole) == NULL || access(whole, R_OK) != 0) {
        once__cli_say("cannot read %s %s: %s", what, once__cli_shown(name).text, strerror(errno));
        return ONCE__CLI_STORE;
    }
    snprintf(path, ONCE__GATE_PATH_SIZE, "%s", whole);
    return ONCE__CLI_OK;
}

int once__gate_find_trusted(const char *option, const char *const *places,
                            char path[ONCE__GATE_PATH_SIZE])
{
    const char *variable = getenv("SSL_CERT_FILE"); /* as in every program that uses OpenSSL */

    if (option != NULL || (variable != NULL && variable[0] != '\0')) {
        return once__gate_find_file("the certificates", option != NULL ? option : variable, path);
    }
    for (; *places != NULL; places++) {
        if (access(*places, R_OK) == 0) {
            return once__gate_find_file("the certificates", *places, path);
        }
    }
    once__cli_say("no CA certificates to verify the upstream with: install them (Debian: "
                  "apt install ca-certificates), or give a file with --upstream-ca");
    return ONCE__CLI_STORE;
}

/* Looks for the program in folders separated by colons. */
static int find_in(const char *folders, const char *program, char path[ONCE__GATE_PATH_SIZE])
{
    for (const char *at = folders; at != NULL && *at != '\0';) {
        size_t len = strcspn(at, ":");
        int written = snprintf(path, ONCE__GATE_PATH_SIZE, "%.*s/%s", (int)len, at, program);
        if (len > 0 && written < ONCE__GATE_PATH_SIZE && access(path, X_OK) == 0) {
            return 1;
        }
        at += len + (at[len] == ':');
    }
    return 0;
}

int once__gate_look_for_nginx(const char *option, char path[ONCE__GATE_PATH_SIZE])
{
    char whole[PATH_MAX];

    if (option == NULL) {
        return find_in(getenv("PATH"), "nginx", path) || find_in(MORE_PATHS, "nginx", path);
    }
    if (access(option, X_OK) != 0 || realpath(option, whole) == NULL) {
        return 0;
    }
    snprintf(path, ONCE__GATE_PATH_SIZE, "%s", whole);
    return 1;
}

int once__gate_find_nginx(const char *option, char path[ONCE__GATE_PATH_SIZE])
{
    if (once__gate_look_for_nginx(option, path)) {
        return ONCE__CLI_OK;
    }
    if (option != NULL) {
        once__cli_say("cannot run %s: %s", once__cli_shown(option).text, strerror(errno));
    } else {
        once__cli_say("nginx was not found: install it (Debian: apt install nginx), or give its "
                      "path with --nginx");
    }
    return ONCE__CLI_STORE;
}

/* The folder of this program, without the last slash. */
static int own_folder(char folder[PATH_MAX])
{
    ssize_t len = readlink("/proc/self/exe", folder, PATH_MAX - 1);
    char *slash;

    if (len <= 0) {
        return -1;
    }
    folder[len] = '\0';
    slash = strrchr(folder, '/');
    if (slash == NULL) {
        return -1;
    }
    *slash = '\0';
    return 0;
}

int once__gate_find_module(const char *option, char path[ONCE__GATE_PATH_SIZE])
{
    static const char *const places[] = {
        "/../lib/nginx/modules/", /* beside bin, where make install puts it */
        "/",                      /* a build directory */
    };
    static const char *const others[] = {"/usr/lib/nginx/modules/", "/usr/local/lib/nginx/modules/",
                                         "/usr/lib64/nginx/modules/", "/etc/nginx/modules/"};
    char folder[PATH_MAX];
    char tried[PATH_MAX + 64];

    if (option != NULL) {
        return once__gate_find_file("the module", option, path);
    }
    for (size_t i = 0; i < 2 && own_folder(folder) == 0; i++) {
        snprintf(tried, sizeof(tried), "%s%s%s", folder, places[i], MODULE);
        if (access(tried, R_OK) == 0) {
            return once__gate_find_file("the module", tried, path);
        }
    }
    for (size_t i = 0; i < sizeof(others) / sizeof(others[0]); i++) {
        snprintf(tried, sizeof(tried), "%s%s", others[i], MODULE);
        if (access(tried, R_OK) == 0) {
            return once__gate_find_file("the module", tried, path);
        }
    }
    once__cli_say(MODULE
                  " was not found: build it (make build), install it (make install), or give its "
                  "path with --module");
    return ONCE__CLI_STORE;
}
