/*
 * LMDB: one transaction for each batch, synced as it comes.
 */
#include "contest.h"

#include <stddef.h>

#ifdef WITH_LMDB

#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include <lmdb.h>

#include "load.h"

#define MAP_SIZE ((size_t)64 << 30)

typedef struct tree {
    contestant_t base;
    MDB_env *env;
    MDB_dbi dbi;
    uint64_t next;
} tree_t;

static void check(int code)
{
    if (code != 0) {
        contest_die("lmdb", mdb_strerror(code));
    }
}

static contestant_t *tree_open(const contestant_t *kind, const char *directory)
{
    tree_t *tree = calloc(1, sizeof(*tree));
    MDB_txn *txn;

    if (tree == NULL) {
        contest_die("lmdb", "out of memory");
    }
    tree->base = *kind;
    (void)mkdir(directory, 0700);
    check(mdb_env_create(&tree->env));
    check(mdb_env_set_mapsize(tree->env, MAP_SIZE));
    check(mdb_env_open(tree->env, directory, 0, 0600));
    check(mdb_txn_begin(tree->env, NULL, 0, &txn));
    check(mdb_dbi_open(txn, NULL, MDB_CREATE, &tree->dbi));
    check(mdb_txn_commit(txn));
    return &tree->base;
}

static void claim(const tree_t *tree, MDB_txn *txn, uint64_t n)
{
    uint8_t id[CONTEST_ID_SIZE], head[CONTEST_HEAD_SIZE] = {1};
    MDB_val key = {sizeof(id), id}, value = {sizeof(head), head};

    contest_id(id, n);
    check(mdb_put(txn, tree->dbi, &key, &value, MDB_NOOVERWRITE));
}

static void complete(const tree_t *tree, MDB_txn *txn, uint64_t n)
{
    uint8_t id[CONTEST_ID_SIZE], record[CONTEST_HEAD_SIZE + LOAD_BODY_MAX];
    MDB_val key = {sizeof(id), id}, value;
    once_slice_t body = load_body(LOAD_SIMILAR, n);

    contest_id(id, n);
    check(mdb_get(txn, tree->dbi, &key, &value));
    memcpy(record, value.mv_data, CONTEST_HEAD_SIZE);
    memcpy(record + CONTEST_HEAD_SIZE, body.data, body.len);
    value.mv_size = CONTEST_HEAD_SIZE + body.len;
    value.mv_data = record;
    check(mdb_put(txn, tree->dbi, &key, &value, 0));
}

static void tree_run(contestant_t *self, uint64_t pairs, unsigned batch)
{
    tree_t *tree = (tree_t *)self;

    for (uint64_t done = 0; done < pairs; done += batch, tree->next += batch) {
        MDB_txn *txn;
        check(mdb_txn_begin(tree->env, NULL, 0, &txn));
        for (unsigned i = 0; i < batch; i++) {
            claim(tree, txn, tree->next + i);
        }
        check(mdb_txn_commit(txn));
        check(mdb_txn_begin(tree->env, NULL, 0, &txn));
        for (unsigned i = 0; i < batch; i++) {
            complete(tree, txn, tree->next + i);
        }
        check(mdb_txn_commit(txn));
    }
}

static void tree_close(contestant_t *self)
{
    tree_t *tree = (tree_t *)self;

    mdb_env_close(tree->env);
    free(tree);
}

const contestant_t contest_lmdb = {"LMDB", tree_open, tree_run, tree_close};

#else

const contestant_t contest_lmdb = {NULL, NULL, NULL, NULL};

#endif
