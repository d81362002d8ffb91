/*
 * Dictionaries of a store (docs/format.md, "The dictionaries in Redis"): what many responses and descriptions have in common, kept
 * under one key of the store. What a record repeats of it is a few bytes.
 *
 * Only what at least ONCE__PIECES_LEAST of the samples have goes into one: never what a single response says. A dictionary is never
 * changed, and its id is a checksum of it: a record that names one is unpacked with that one or not at all. A dictionary is
 * compressed with only while the store holds it and has not retired it, which record.lua checks with each record. One that has what
 * too few records still say is retired, and goes when no record names it any more (scrub.c).
 */
#ifndef ONCE_STORE_REDIS_DICTIONARIES_H
#define ONCE_STORE_REDIS_DICTIONARIES_H

#include "store/pieces.h"

#define ONCE__REDIS_DICTIONARIES_MAX 64
#define ONCE__REDIS_DICTIONARY_MAX   4096 /* bytes of one */
#define ONCE__REDIS_ABOUT_MAX        512
#define ONCE__REDIS_KEY_ROOM         40
#define ONCE__REDIS_ID_SIZE          4
#define ONCE__REDIS_ENTRY_SIZE       (2 + ONCE__REDIS_ID_SIZE) /* in the list, before each: length, id */
#define ONCE__REDIS_RETIRED                                                                        \
    0x8000u /* beside the length: nothing more is compressed with it; 0 bytes: it is gone */

typedef struct once__redis_dictionary {
    uint32_t id;
    uint32_t
        place; /* of its entry in the list that was read last, + 1; 0: it was not there, or it is doubted */
    uint16_t len;
    uint8_t is_retired; /* then its place is 0 */
    uint8_t *bytes;
    uint8_t *touched; /* behind them, for each: a record had it that this program erased */
    once__dictionary_t *coder;
} once__redis_dictionary_t;

/* Zeroed at first. */
typedef struct once__redis_dictionaries {
    once__redis_dictionary_t known[ONCE__REDIS_DICTIONARIES_MAX];
    unsigned count;
    size_t list_len;  /* of the list that was read last */
    unsigned current; /* the one to compress with, + 1; 0: none */
    uint32_t missing; /* the one that unpacking lacked last */
    int met_retired;  /* set when unpacking needed one that is retired */
    int has_erased;   /* this program has erased records */
    int is_unsure;    /* and not seen the text of one of them: it may have touched anything */
    once__pieces_t samples;

    uint8_t candidate[ONCE__REDIS_ENTRY_SIZE +
                      ONCE__REDIS_DICTIONARY_MAX]; /* to be stored, as an entry of the list */
    size_t candidate_len;

    /* The payloads of the command that was made last, compressed; those that do not fit are sent as they are. */
    uint8_t packed[65536];
    size_t packed_len;

    /* What the record that was unpacked last has in another form there: its key, what it says about itself, its response. */
    uint8_t memory[ONCE__REDIS_KEY_ROOM + ONCE__REDIS_ABOUT_MAX + ONCE__DICTIONARY_MOST];
} once__redis_dictionaries_t;

void once__redis_dictionaries_free(once__redis_dictionaries_t *dictionaries);

/*
 * Compresses into `out`, which has room for ONCE__REDIS_COMPRESS_ROOM(len) bytes. Returns how many; 0: not worth it, or
 * `dictionaries` is NULL or has no current one that the store holds.
 */
#define ONCE__REDIS_COMPRESS_ROOM(len) ((len) + 8)
size_t once__redis_compress(const once__redis_dictionaries_t *dictionaries, uint8_t *out,
                            const void *data, size_t len);

/* The one that is compressed with; NULL: none. */
const once__redis_dictionary_t *
once__redis_dictionary_held(const once__redis_dictionaries_t *dictionaries);

/* The store may have lost its list: nothing is compressed until that has been read again. */
void once__redis_dictionaries_doubt(once__redis_dictionaries_t *dictionaries);

/* Gives the bytes again, at most `most`, in `out`. ONCE_OK; ONCE_E_CORRUPT; ONCE_E_NOT_FOUND: that dictionary is `missing`. */
int once__redis_decompress(once__redis_dictionaries_t *dictionaries, uint8_t *out, size_t most,
                           const uint8_t *in, size_t len, size_t *out_len);

/*
 * A text for the samples, if it is taken. Returns 1 when there are enough of them for once__redis_dictionaries_judge, which chooses
 * the one that is best for the samples, and makes a candidate if a new one would be much better; then samples
 * are collected again.
 */
int once__redis_dictionaries_offer(once__redis_dictionaries_t *dictionaries, const void *data,
                                   size_t len);
void once__redis_dictionaries_judge(once__redis_dictionaries_t *dictionaries);

/* Notes where dictionaries have something in common with a text that is erased. */
void once__redis_dictionaries_touch(once__redis_dictionaries_t *dictionaries, const void *data,
                                    size_t len);

/* The one with this id; NULL: it is not known. */
const once__redis_dictionary_t *
once__redis_dictionary_of(const once__redis_dictionaries_t *dictionaries, uint32_t id);

/*
 * The list as the store has it. Takes those that are not known yet; the current one is the candidate if the store has lost it.
 * Returns 0, or -1 if it is not such a list: then none counts as held.
 */
int once__redis_dictionaries_read(once__redis_dictionaries_t *dictionaries, const uint8_t *data,
                                  size_t len);

#endif
