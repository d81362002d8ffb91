/*
 * Every command, each defined in the file of its name: in cmd/, gate in src/gate, ui in src/ui, help and version in help.c.
 */
#ifndef ONCE_CLI_COMMANDS_H
#define ONCE_CLI_COMMANDS_H

#include "cli/cli.h"

extern const once__cli_command_t once__cli_gate;
extern const once__cli_command_t once__cli_relay;
extern const once__cli_command_t once__cli_consume;
extern const once__cli_command_t once__cli_serve;
extern const once__cli_command_t once__cli_ui;
extern const once__cli_command_t once__cli_keys_list;
extern const once__cli_command_t once__cli_keys_find;
extern const once__cli_command_t once__cli_keys_show;
extern const once__cli_command_t once__cli_keys_settle;
extern const once__cli_command_t once__cli_keys_release;
extern const once__cli_command_t once__cli_keys_purge;
extern const once__cli_command_t once__cli_keys_erase;
extern const once__cli_command_t once__cli_keys_export;
extern const once__cli_command_t once__cli_audit_list;
extern const once__cli_command_t once__cli_audit_verify;
extern const once__cli_command_t once__cli_trace;
extern const once__cli_command_t once__cli_stats;
extern const once__cli_command_t once__cli_health;
extern const once__cli_command_t once__cli_outbox_list;
extern const once__cli_command_t once__cli_outbox_retry;
extern const once__cli_command_t once__cli_outbox_drop;
extern const once__cli_command_t once__cli_dlq_list;
extern const once__cli_command_t once__cli_dlq_replay;
extern const once__cli_command_t once__cli_secret_webhook;
extern const once__cli_command_t once__cli_pg_install;
extern const once__cli_command_t once__cli_pg_upgrade;
extern const once__cli_command_t once__cli_pg_status;
extern const once__cli_command_t once__cli_fsck;
extern const once__cli_command_t once__cli_backup;
extern const once__cli_command_t once__cli_convert;
extern const once__cli_command_t once__cli_reap;
extern const once__cli_command_t once__cli_secret_rotate;
extern const once__cli_command_t once__cli_key_new;
extern const once__cli_command_t once__cli_key_derive;
extern const once__cli_command_t once__cli_key_hash;
extern const once__cli_command_t once__cli_key_compose;
extern const once__cli_command_t once__cli_key_check;
extern const once__cli_command_t once__cli_call;
extern const once__cli_command_t once__cli_demo;
extern const once__cli_command_t once__cli_cost;
extern const once__cli_command_t once__cli_bench_store;
extern const once__cli_command_t once__cli_conformance;
extern const once__cli_command_t once__cli_help;
extern const once__cli_command_t once__cli_version;

#endif
