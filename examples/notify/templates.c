#include "templates.h"

#include <dirent.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "pointer.h"
#include "render.h"

#define FILE_MAX 65536

static int wrong(const char *path, const char *why)
{
    fprintf(stderr, "notify: %s: %s\n", path, why);
    return -1;
}

/* The whole file, terminated, without the newlines at its end. *text is NULL when there is no such file. */
static int read_text(const char *path, char **text)
{
    FILE *file = fopen(path, "re");
    size_t len;

    *text = NULL;
    if (file == NULL) {
        return 0;
    }
    *text = malloc(FILE_MAX + 1);
    len = *text != NULL ? fread(*text, 1, FILE_MAX + 1, file) : 0;
    fclose(file);
    if (*text == NULL || len > FILE_MAX) {
        return wrong(path, "cannot be read, or is longer than 64 KiB");
    }
    while (len > 0 && (*text)[len - 1] == '\n') {
        len--;
    }
    (*text)[len] = '\0';
    return len > 0 ? 0 : wrong(path, "is empty");
}

static int check_text(const char *path, channel_t channel, const char *text)
{
    char why[160];

    if (render_check(text, why, sizeof(why)) != 0) {
        return wrong(path, why);
    }
    if (channel == CHANNEL_MAIL) {
        const char *end = strchr(text, '\n');

        if (end == NULL || end == text || end[1] != '\n' || end[2] == '\0') {
            return wrong(path, "a mail is a line with its subject, an empty line, and a text");
        }
    }
    return 0;
}

static int load_users(template_t *template, const char *path)
{
    char *text, *line, *rest;
    size_t count = 0;

    if (read_text(path, &text) != 0) {
        free(text);
        return -1;
    }
    if (text == NULL) {
        return wrong(path, "is not there: it says who is notified");
    }
    for (line = strtok_r(text, "\n", &rest); line != NULL; line = strtok_r(NULL, "\n", &rest)) {
        if (!pointer_valid(line) || count == TEMPLATE_USERS_MAX - 1) {
            free(text);
            return wrong(path, "has to be JSON pointers such as /customer, one a line, at most 7");
        }
        template->users[count++] = strdup(line);
    }
    free(text);
    return 0;
}

static int load_one(template_t *template, const char *folder, const char *type)
{
    char path[PATH_MAX];
    int texts = 0;

    template->type = strdup(type);
    snprintf(path, sizeof(path), "%s/%s/users", folder, type);
    if (load_users(template, path) != 0) {
        return -1;
    }
    for (channel_t channel = 0; channel < CHANNELS; channel++) {
        char **text = &template->text[channel];

        snprintf(path, sizeof(path), "%s/%s/%s", folder, type, channel_name(channel));
        if (read_text(path, text) != 0 ||
            (*text != NULL && check_text(path, channel, *text) != 0)) {
            return -1;
        }
        texts += *text != NULL;
    }
    snprintf(path, sizeof(path), "%s/%s", folder, type);
    return texts > 0 ? 0 : wrong(path, "has none of the files mail, sms, push");
}

static int load_next(templates_t *templates, const char *folder, const char *type)
{
    template_t *list = realloc(templates->list, (templates->count + 1) * sizeof(*list));

    if (list == NULL) {
        return wrong(folder, "out of memory");
    }
    templates->list = list;
    memset(&list[templates->count], 0, sizeof(*list));
    return load_one(&list[templates->count++], folder, type);
}

int templates_load(templates_t *templates, const char *folder)
{
    DIR *dir = opendir(folder);
    struct dirent *entry;
    int result = 0;

    *templates = (templates_t){0};
    if (dir == NULL) {
        return wrong(folder, "there is no such folder of templates");
    }
    while (result == 0 && (entry = readdir(dir)) != NULL) {
        if (entry->d_name[0] != '.') {
            result = load_next(templates, folder, entry->d_name);
        }
    }
    closedir(dir);
    if (result == 0 && templates->count == 0) {
        result = wrong(folder, "has no templates");
    }
    return result;
}

void templates_free(templates_t *templates)
{
    for (size_t i = 0; i < templates->count; i++) {
        template_t *template = &templates->list[i];

        free(template->type);
        for (size_t n = 0; n < TEMPLATE_USERS_MAX; n++) {
            free(template->users[n]);
        }
        for (channel_t channel = 0; channel < CHANNELS; channel++) {
            free(template->text[channel]);
        }
    }
    free(templates->list);
}

const template_t *templates_find(const templates_t *templates, const char *type)
{
    for (size_t i = 0; i < templates->count; i++) {
        if (strcmp(templates->list[i].type, type) == 0) {
            return &templates->list[i];
        }
    }
    return NULL;
}

char *template_render(const template_t *template, channel_t channel, json_t *payload,
                      const user_t *user, const char *event_id, problem_t *problem)
{
    render_t values = {.payload = payload, .user = user, .event_id = event_id};
    char *text = render_text(template->text[channel], &values);

    if (text == NULL) {
        problem_set(problem, 422, PROBLEM_BAD_EVENT,
                    "the payload has no %s, which the %s of this type needs", values.missing,
                    channel_name(channel));
    }
    return text;
}
