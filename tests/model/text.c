/*
 * Traces in words. `#2` is the second claim id that was made; epochs may restart, claim ids never repeat.
 */
#include "search.h"

static const char *outcome_text(uint8_t outcome)
{
    return outcome == ONCE__MINE ? "mine" : once_outcome_name((once_outcome_t)outcome);
}

static const char *const answers[] = {
    [MODEL_SAYS_2XX] = "2xx",       [MODEL_SAYS_4XX] = "4xx",
    [MODEL_SAYS_401] = "401",       [MODEL_SAYS_5XX] = "5xx",
    [MODEL_SAYS_5XX_DOUBT] = "502", [MODEL_SAYS_RETRY] = "Once-Outcome: retry"};

static void print_ask(FILE *out, const model_move_t *move)
{
    if (move->lost) {
        fprintf(out, "slot%u: claim #%u applied (%s), REPLY LOST", move->who, move->claim,
                outcome_text(move->outcome));
    } else if (move->outcome == ONCE_OUTCOME_RUN) {
        fprintf(out, "slot%u: claim #%u -> run epoch %u", move->who, move->claim, move->epoch);
    } else {
        fprintf(out, "slot%u: claim #%u -> %s", move->who, move->claim,
                outcome_text(move->outcome));
    }
}

static void print_write(FILE *out, const model_move_t *move)
{
    const char *name = once__event_name((once__event_kind_t)move->kind);

    if (move->act == MODEL_LATE_COPY) {
        fprintf(out, "late copy of #%u: %s(epoch %u) -> %s", move->claim, name, move->epoch,
                outcome_text(move->outcome));
    } else if (move->lost) {
        fprintf(out, "slot%u: %s(epoch %u #%u) applied (%s), REPLY LOST, will repeat", move->who,
                name, move->epoch, move->claim, outcome_text(move->outcome));
    } else {
        fprintf(out, "slot%u: %s(epoch %u #%u) -> %s", move->who, name, move->epoch, move->claim,
                outcome_text(move->outcome));
    }
}

static void print_gateway(FILE *out, const model_move_t *move)
{
    switch (move->act) {
    case MODEL_ARRIVES:
        fprintf(out, "slot%u: request fp%u arrives (%s)", move->who, move->detail,
                once_recover_name((once_recover_t)move->kind));
        break;
    case MODEL_ASKS:
        print_ask(out, move);
        break;
    case MODEL_GIVES_UP:
        fprintf(out, "slot%u: client gets 503, claim #%u goes on", move->who, move->claim);
        break;
    case MODEL_FORWARDS:
        fprintf(out, "slot%u: forwards epoch %u #%u", move->who, move->epoch, move->claim);
        break;
    case MODEL_SENDS_NOTHING:
        fprintf(out, "slot%u: %s", move->who,
                move->detail ? "gives the completion up" : "nothing sent");
        break;
    case MODEL_TIMES_OUT:
        fprintf(out, "slot%u: upstream times out (doubt)", move->who);
        break;
    case MODEL_CRASHES:
        fprintf(out, "gateway %u CRASHES", move->who);
        break;
    default:
        print_write(out, move);
        break;
    }
}

static void print_backend(FILE *out, const model_move_t *move)
{
    switch (move->act) {
    case MODEL_ANSWERED:
        fprintf(out, "backend: epoch %u #%u answers %s (%s)", move->epoch, move->claim,
                answers[move->kind], move->detail ? "effect done" : "no effect");
        break;
    case MODEL_TAKES_EFFECT:
        fprintf(out, "backend: EFFECT of epoch %u #%u", move->epoch, move->claim);
        break;
    case MODEL_COMMITS:
        if (move->outcome == ONCE_OUTCOME_DONE) {
            fprintf(out, "backend: tx of epoch %u #%u COMMITS effect + once.complete", move->epoch,
                    move->claim);
        } else {
            fprintf(out, "backend: once.complete(epoch %u #%u) raises (%s), tx rolls back",
                    move->epoch, move->claim, outcome_text(move->outcome));
        }
        break;
    default:
        fprintf(out, "backend: job of epoch %u #%u ends silently", move->epoch, move->claim);
        break;
    }
}

static void print_time(FILE *out, const model_move_t *move)
{
    static const char *const verdicts[] = {"", "it has happened", "it has not happened",
                                           "forget it"};

    switch (move->act) {
    case MODEL_LEASE_RUNS_OUT:
        fprintf(out, "lease of epoch %u #%u runs out%s", move->epoch, move->claim,
                move->detail ? " (holder alive)" : "");
        break;
    case MODEL_RETENTION_PASSES:
        fprintf(out, "a retention passes after the lease of epoch %u #%u", move->epoch,
                move->claim);
        break;
    case MODEL_TTL_OVER:
        fprintf(out, "%s over: %s record", move->detail ? "two leases" : "ttl",
                once_state_name((once_state_t)move->kind));
        break;
    case MODEL_REAPED:
        fprintf(out, "reap of the %s record -> %s", once_state_name((once_state_t)move->kind),
                outcome_text(move->outcome));
        break;
    case MODEL_LOOKS:
        fprintf(out, "operator looks at epoch %u #%u: %s%s", move->epoch, move->claim,
                verdicts[move->kind], move->detail ? " (will force)" : "");
        break;
    default:
        fprintf(out, "%s(epoch %u #%u) %s%s%s", once__event_name((once__event_kind_t)move->kind),
                move->epoch, move->claim, move->lost ? "applied (" : "-> ",
                outcome_text(move->outcome), move->lost ? "), REPLY LOST, will repeat" : "");
        break;
    }
}

static void print_move(FILE *out, const model_move_t *move)
{
    if (move->act <= MODEL_TIMES_OUT || move->act == MODEL_WRITES || move->act == MODEL_LATE_COPY ||
        move->act == MODEL_CRASHES) {
        print_gateway(out, move);
    } else if (move->act == MODEL_ANSWERED || move->act == MODEL_TAKES_EFFECT ||
               move->act == MODEL_COMMITS || move->act == MODEL_DIES) {
        print_backend(out, move);
    } else {
        print_time(out, move);
    }
}

void search_print(FILE *out, const search_result_t *result)
{
    static const char *const leases[] = {"over", "live", "long over"};
    const model_record_t *record = &result->last.record;

    fprintf(out, "VIOLATION %s (%zu steps)\n", result->broken, result->steps);
    for (size_t i = 0; i < result->steps; i++) {
        fprintf(out, "  %6zu ", i + 1);
        print_move(out, &result->trace[i]);
        fputc('\n', out);
    }
    fprintf(out, "         (record %s, epoch %u #%u, lease %s%s%s)\n",
            once_state_name((once_state_t)record->state), record->epoch, record->claim,
            leases[record->lease], record->flags & ONCE__BY_LEASE ? ", by lease" : "",
            record->flags & ONCE__TAINTED ? ", tainted" : "");
}
