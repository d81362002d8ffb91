/*
 * Keys, responses and descriptions as rows have them (docs/format.md, "In PostgreSQL"), and the dictionary that the handle packs
 * with. The store's dictionaries are made by its handles: one that packs badly collects samples, makes a dictionary of them and
 * proposes it; the store takes it, or answers with a newer one (once.store_dictionary). What was packed with another dictionary
 * than the handle's newest is unpacked by the server, so that reading never has to wait for one. A failover or a restore may leave
 * the store without a dictionary that handles have, or with another of its number: it refuses what it could not unpack
 * (once.store_apply), and the handle forgets the dictionary and sends its operations again. What is packed has a check of what it
 * stands for, so that no other text is ever read from it.
 */
#ifndef ONCE_STORE_POSTGRES_PACKING_H
#define ONCE_STORE_POSTGRES_PACKING_H

#include "store/pieces.h"
#include "store/store.h"

#define ONCE__POSTGRES_DICTIONARIES    128 /* numbers are 1 to 127 */
#define ONCE__POSTGRES_SHORT_KEY       17  /* a UUID as a row has it: 0, and its bytes */
#define ONCE__POSTGRES_DICTIONARY_NAME 5

typedef struct once__postgres_packing {
    struct {
        once__dictionary_t *payload, *about; /* NULL: none */
    } known[ONCE__POSTGRES_DICTIONARIES];
    unsigned number;                              /* the newest that is known; 0: none */
    uint8_t name[ONCE__POSTGRES_DICTIONARY_NAME]; /* number and content, as the store names it */
    size_t name_len;
    unsigned rest; /* this many payloads go by before a dictionary is asked for again */
    once__pieces_t payloads, abouts;
    uint64_t plain, packed, count; /* bytes, and payloads, since they were judged last */
    uint64_t pause;                /* how many payloads are judged at a time */
    int is_sampling;
    int is_asked;   /* for the newest */
    int is_asking;  /* `op` is submitted */
    int is_refused; /* this role may not, or the URL says dictionary=off */
    once__op_t op;  /* asks for the newest, or proposes one; known by its address */
    uint8_t *proposal, *about_proposal;
    size_t proposal_len, about_proposal_len;
    uint8_t bytes[ONCE__DICTIONARY_MOST +
                  16]; /* of the last call below that packed or unpacked a payload */
    uint8_t about_bytes[512 + 16];
    uint8_t key_bytes[40];
} once__postgres_packing_t;

void once__postgres_packing_free(once__postgres_packing_t *packing);

/* As a row has them. What is returned points to what was given, or into `packing` until the next such call. */
once_slice_t once__postgres_pack_key(once__postgres_packing_t *packing, once_slice_t key);
once_slice_t once__postgres_pack_about(once__postgres_packing_t *packing, once_slice_t about);
once_slice_t once__postgres_pack_payload(once__postgres_packing_t *packing,
                                         const once__payload_t *payload);

/* A claim with this description was granted. */
void once__postgres_packing_granted(once__postgres_packing_t *packing, once_slice_t about);

/* The record as it was, from one with a row's key, description and payload. A description that is damaged is left out. ONCE_OK,
   ONCE_E_CORRUPT. */
int once__postgres_unpack(once__postgres_packing_t *packing, once__record_t *record);

/* Is it time to ask for the newest dictionary, or to propose one? Then the operation to submit; NULL: no. */
once__op_t *once__postgres_packing_ask(once__postgres_packing_t *packing, const once__op_t *next);

/* The store's newest dictionary, as it answered. */
void once__postgres_packing_learn(once__postgres_packing_t *packing, once_slice_t name,
                                  once_slice_t payload, once_slice_t about);

/* The store does not have the dictionary that the handle packs with: nothing is packed until it was asked again. */
void once__postgres_packing_forget(once__postgres_packing_t *packing);

#endif
