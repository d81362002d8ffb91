/*
 * The Lua scripts of the redis store: the files of this folder, embedded at build time.
 */
#ifndef ONCE_STORE_REDIS_SCRIPTS_H
#define ONCE_STORE_REDIS_SCRIPTS_H

#include <stddef.h>

typedef enum once__redis_script {
    ONCE__REDIS_CLAIM,        /* record.lua without its first line: claims, and get */
    ONCE__REDIS_CHANGE,       /* record.lua: every other event */
    ONCE__REDIS_SECRETS,      /* secrets.lua */
    ONCE__REDIS_DICTIONARIES, /* dictionaries.lua */
    ONCE__REDIS_REPLACE,      /* replace.lua */
    ONCE__REDIS_AUDIT_READ,   /* audit.lua without its first line */
    ONCE__REDIS_AUDIT_ADD,    /* audit.lua */
    ONCE__REDIS_SCRIPT_COUNT
} once__redis_script_t;

#define ONCE__REDIS_SHA_SIZE 41

/* A script as it is sent, and the name by which Redis knows it afterwards: SHA-1 of the text, in hex. */
typedef struct once__redis_text {
    const char *text;
    size_t len;
    char sha[ONCE__REDIS_SHA_SIZE];
} once__redis_text_t;

typedef once__redis_text_t once__redis_texts_t[ONCE__REDIS_SCRIPT_COUNT];

void once__redis_scripts_load(once__redis_texts_t texts);

/* The files as they are embedded. */
typedef struct once__redis_file {
    const char *name, *text;
} once__redis_file_t;

extern const once__redis_file_t once__redis_files[];
extern const size_t once__redis_files_count;

#endif
