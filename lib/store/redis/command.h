/*
 * Turns operations into commands, and replies into answers.
 */
#ifndef ONCE_STORE_REDIS_COMMAND_H
#define ONCE_STORE_REDIS_COMMAND_H

#include <hiredis/hiredis.h>

#include "store/redis/pack.h"
#include "store/redis/scripts.h"
#include "store/redis/settings.h"
#include "store/store.h"

#define ONCE__REDIS_GROUP_MAX 16 /* operations in one call of a script */
#define ONCE__REDIS_ARGS_MAX  (9 + 3 * ONCE__REDIS_GROUP_MAX)
#define ONCE__REDIS_NAME_LEN  43 /* a record id in base64url */
#define ONCE__REDIS_KEY_SIZE  (ONCE__REDIS_PREFIX_MAX + ONCE__REDIS_NAME_LEN + 1)
#define ONCE__REDIS_MARK_SIZE (2 * ONCE__REDIS_PREFIX_MAX + 16)
/* Of each: its key, and the record that a claim leaves, or a cause. */
#define ONCE__REDIS_TEXTS_MAX (1024 + 2 * ONCE__REDIS_MARK_SIZE + 1200 * ONCE__REDIS_GROUP_MAX)

/* The arguments of one command. `texts` holds those that were composed. */
typedef struct once__redis_command {
    const char *argv[ONCE__REDIS_ARGS_MAX];
    size_t lengths[ONCE__REDIS_ARGS_MAX];
    int argc;
    char texts[ONCE__REDIS_TEXTS_MAX];
    size_t used;
} once__redis_command_t;

void once__redis_add(once__redis_command_t *command, const void *data, size_t len);
void once__redis_add_text(once__redis_command_t *command, const char *text);
void once__redis_add_number(once__redis_command_t *command, uint64_t number);

/* The Redis key of a record, or of the secrets. Returns its length. */
size_t once__redis_key(const once__redis_settings_t *settings, const once__op_t *op,
                       char key[ONCE__REDIS_KEY_SIZE]);
size_t once__redis_record_key(const once__redis_settings_t *settings, const uint8_t *id,
                              char key[ONCE__REDIS_KEY_SIZE]);

/* The Redis key of the mark of the record secret. Returns its length. */
size_t once__redis_mark_key(const once__redis_settings_t *settings,
                            char key[ONCE__REDIS_MARK_SIZE]);

/* The Redis key of the list of dictionaries. Returns its length. */
size_t once__redis_dictionaries_key(const once__redis_settings_t *settings,
                                    char key[ONCE__REDIS_MARK_SIZE]);

/* Whether one command is enough: not for scan, stats and reap. */
int once__redis_is_simple(const once__op_t *op);

/* Whether it can share a call of its script with others of its kind. Where keys have slots, it cannot. */
int once__redis_is_groupable(const once__op_t *op);

/*
 * The command for a simple operation, or for several that can share it. It is sent before the next one is made.
 * `with_text`: Redis does not know the script, so its text is sent. `apart`: keys have slots, and the mark of the secrets may be in
 * another slot than a claim: the caller compares it. `dictionaries`: NULL, or what to compress with; NULL where
 * keys are apart, because the script must see that the store holds the dictionary.
 */
void once__redis_command_of(once__redis_command_t *command, once__op_t *const *ops, unsigned count,
                            const once__redis_settings_t *settings, const once__redis_texts_t texts,
                            once__redis_dictionaries_t *dictionaries, int with_text, int apart);

/* The command that removes one record if it is over. */
void once__redis_command_reap(once__redis_command_t *command, const once__redis_texts_t texts,
                              int with_text, const char *key, size_t key_len);

/*
 * Reads the answer of a simple operation from a reply that is no error. Returns 0; -1 if it answers something else; 1 if it has a
 * record that needs a dictionary which is not known.
 */
int once__redis_read(once__op_t *op, once__redis_dictionaries_t *dictionaries,
                     const redisReply *reply);

/* The code for an operation whose command got this error. */
int once__redis_error_of(const char *text);

#endif
