/*
 * One machine, on which all processes use one local store: the store's real code over real files in memory. Its disk, its
 * clocks and its boots are the simulation's.
 *
 * The power can fail at any moment, and in the middle of whatever the store does with its disk. Then the files are as a disk may
 * have them: of what was written since the last sync, each sector is there, or not, or torn; so are names (tests/local/disk.h).
 * The machine restarts with another boot id, and the first to open the store rebuilds its index.
 *
 * What a process decides counts for the ledger when its sync has returned, or when others have acted upon it: until then it
 * stands in the journal, and a power failure may take it away (journal.c).
 */
#ifndef SIMULATION_MACHINE_H
#define SIMULATION_MACHINE_H

#include "message.h"

#include "local/disk.h"
#include "store/local/directory.h"
#include "store/local/local.h"

/* Something that a process decided and that may yet be lost. */
typedef struct entry {
    struct entry *next;
    const link_t *link;
    once__op_t op;
    uint64_t clock; /* the store's, when it was decided */
    mirror_t after;
    const message_t *message;
} entry_t;

typedef struct machine {
    world_t *world;
    char base[PLACE_SIZE], store[PLACE_SIZE];
    unsigned boots;
    uint8_t boot_id[ONCE__BOOT_ID_SIZE];
    uint64_t booted_at;  /* true time */
    uint64_t died_at;    /* the store's clock, when the machine went down */
    uint64_t full_until; /* the disk has no room */
    int down;            /* the power has failed; what the disk holds then is `image` */
    int orderly; /* it is down, but what was written was synced, and all processes ended in good order */
    char image[PLACE_SIZE];
    disk_t disk;
    dice_t dice;
    once__disk_t hooks;  /* what the stores are opened with */
    unsigned disk_fails; /* so far */

    /* To look at the records from outside of all processes. */
    once__directory_t directory;
    once__reader_t *reader;
    mirror_t now[PLAN_KEYS_MAX];    /* as the index has them, durable or not */
    mirror_t reaped[PLAN_KEYS_MAX]; /* what a reaper took away: the log may still have it */
    entry_t *journal[PLAN_KEYS_MAX], **ends[PLAN_KEYS_MAX];
} machine_t;

void machine_open(world_t *world);
void machine_close(world_t *world);

/* The power fails now. */
void machine_power_fails(world_t *world);
/* Somebody restarts it in good order. The processes do not notice in time. */
void machine_restarts(world_t *world);
int machine_is_down(const world_t *world);

/* The store's clock. */
uint64_t machine_clock(const machine_t *machine);
void machine_pass(machine_t *machine, uint64_t ms);

/* A handle on the store for a process. NULL: a violation. */
once__store_t *machine_attach(process_t *process, once__loop_t *loop);

/* ---- kernel.c ---- */

/* From now on the library sees this machine's clocks and boot id, and its hooks are set; NULL: those of the real one. */
void machine_runs(machine_t *machine);

/* The power fails: what the disk holds at this very moment. */
void machine_take_image(machine_t *machine);

/* machine.c: all processes die, and the machine starts again. */
void machine_dies(void *machine);

/* ---- outside.c ---- */

/* The record as the index has it now. */
mirror_t machine_look(machine_t *machine, const sim_key_t *key);

/* Is its newest frame not synced yet, by what the index says? */
int machine_is_unsynced(const machine_t *machine, const sim_key_t *key);

/* ---- writer.c: what the writer thread of a process does ---- */

void writer_take(message_t *message);
void writer_end(link_t *link);

/* ---- journal.c ---- */

/* The message was decided; the records were so before it. */
void journal_decided(machine_t *machine, message_t *message, const mirror_t before[PLAN_KEYS_MAX]);

/* The process was answered after its sync: then this is durable. */
void journal_answered(machine_t *machine, const message_t *message);

/* Everything that the process decided is durable. */
void journal_synced(machine_t *machine, const link_t *link);

/* The machine is up again: the records must be what was durable, or what was decided after that. */
void journal_recover(machine_t *machine);

#endif
