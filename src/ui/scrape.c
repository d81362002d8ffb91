/*
 * Prometheus's text format, as gate, relay and consumer write it: lines of `name{label="value",...} number`. What is not that is
 * left out: it comes from another process.
 */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "ui/ui.h"

#define SAMPLES_MAX 5000
#define LABELS_MAX  16

static int is_name(char c)
{
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_' ||
           c == ':';
}

static const char *name_end(const char *at, const char *end)
{
    while (at < end && is_name(*at)) {
        at++;
    }
    return at;
}

/* A label's value behind its quote. Returns what is behind the closing quote, or NULL. */
static const char *read_value(const char *at, const char *end, json_t **value)
{
    char *text = malloc((size_t)(end - at) + 1);
    size_t len = 0;

    *value = NULL;
    while (text != NULL && at < end && *at != '"') {
        if (*at == '\\' && at + 1 < end) {
            at++;
            text[len++] = *at == 'n' ? '\n' : *at;
        } else {
            text[len++] = *at;
        }
        at++;
    }
    if (text != NULL && at < end) {
        *value = json_stringn(text, len);
    }
    free(text);
    return *value != NULL ? at + 1 : NULL;
}

/* Behind the brace. Returns what is behind the closing one, or NULL. */
static const char *read_labels(const char *at, const char *end, json_t *labels)
{
    for (int i = 0; i < LABELS_MAX && at < end && *at != '}'; i++) {
        const char *name = at, *stop = name_end(at, end);
        json_t *value;
        char key[100];
        if (stop == name || stop - name >= (long)sizeof(key) || stop + 1 >= end || stop[0] != '=' ||
            stop[1] != '"') {
            return NULL;
        }
        memcpy(key, name, (size_t)(stop - name));
        key[stop - name] = '\0';
        at = read_value(stop + 2, end, &value);
        if (at == NULL || json_object_set_new(labels, key, value) != 0) {
            return NULL;
        }
        at += at < end && *at == ',';
    }
    return at < end && *at == '}' ? at + 1 : NULL;
}

/* A number that JSON can have; NULL: not one. */
static json_t *read_number(const char *at, const char *end)
{
    char text[64], *rest;
    double number;

    at += strspn(at, " \t");
    if (at >= end || end - at >= (long)sizeof(text)) {
        return NULL;
    }
    memcpy(text, at, (size_t)(end - at));
    text[end - at] = '\0';
    number = strtod(text, &rest);
    return rest != text && isfinite(number) ? json_real(number) : NULL;
}

static json_t *read_sample(const char *line, const char *end)
{
    const char *at = name_end(line, end);
    json_t *labels = json_object(), *value = NULL, *sample = NULL;
    json_t *name = at > line ? json_stringn(line, (size_t)(at - line)) : NULL;

    if (name != NULL && at < end && *at == '{') {
        at = read_labels(at + 1, end, labels);
    }
    value = name != NULL && at != NULL ? read_number(at, end) : NULL;
    if (value != NULL) {
        sample = json_pack("{s:O, s:O, s:O}", "name", name, "labels", labels, "value", value);
    }
    json_decref(name);
    json_decref(labels);
    json_decref(value);
    return sample;
}

json_t *once__ui_samples(const char *text)
{
    json_t *samples = json_array();

    while (samples != NULL && *text != '\0' && json_array_size(samples) < SAMPLES_MAX) {
        const char *end = text + strcspn(text, "\n");
        json_t *sample = *text != '#' && end > text ? read_sample(text, end) : NULL;
        if (sample != NULL) {
            (void)json_array_append_new(samples, sample);
        }
        text = end + (*end == '\n');
    }
    return samples;
}
