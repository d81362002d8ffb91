#include "cli/commands.h"

/* In the order of the help within a section (help.c). */
/* clang-format off */
const once__cli_command_t *const once__cli_commands[] = {
    &once__cli_gate,
#if ONCE_WITH_POSTGRES
    &once__cli_relay,
#endif
    &once__cli_consume,
    &once__cli_serve,
    &once__cli_ui,
    &once__cli_keys_list,
    &once__cli_keys_find,
    &once__cli_keys_show,
    &once__cli_keys_settle,
    &once__cli_keys_release,
    &once__cli_keys_purge,
    &once__cli_keys_erase,
    &once__cli_keys_export,
    &once__cli_audit_list,
    &once__cli_audit_verify,
    &once__cli_trace,
    &once__cli_stats,
    &once__cli_health,
#if ONCE_WITH_POSTGRES
    &once__cli_outbox_list,
    &once__cli_outbox_retry,
    &once__cli_outbox_drop,
#endif
    &once__cli_dlq_list,
    &once__cli_dlq_replay,
    &once__cli_secret_webhook,
#if ONCE_WITH_POSTGRES
    &once__cli_pg_install,
    &once__cli_pg_upgrade,
    &once__cli_pg_status,
#endif
    &once__cli_fsck,
    &once__cli_backup,
    &once__cli_convert,
    &once__cli_reap,
    &once__cli_secret_rotate,
#if ONCE_WITH_CLIENT
    &once__cli_call,
#endif
    &once__cli_key_new,
    &once__cli_key_derive,
    &once__cli_key_hash,
    &once__cli_key_compose,
    &once__cli_key_check,
    &once__cli_demo,
    &once__cli_cost,
    &once__cli_bench_store,
    &once__cli_conformance,
    &once__cli_help,
    &once__cli_version,
};
/* clang-format on */

const size_t once__cli_command_count = sizeof(once__cli_commands) / sizeof(once__cli_commands[0]);
