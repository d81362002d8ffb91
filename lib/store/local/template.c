#include "store/local/template.h"

#include <string.h>

#define ALIKE 7u /* samples that must be there */
#define REACH                                                                                      \
    ((uint64_t)1 << 20) /* for so long a template is used: damage to one spoils no more than that */
#define PAUSE                                                                                      \
    ((uint64_t)64                                                                                  \
     << 10) /* at most one in so many bytes pushes out another: most of what is new never comes again */

void once__templates_clear(once__templates_t *templates)
{
    memset(templates->offsets, 0, sizeof(templates->offsets));
    templates->adopted = 0;
}

void once__templates_free(once__templates_t *templates)
{
    for (unsigned i = 0; i < ONCE__TEMPLATES; i++) {
        once__pattern_free(&templates->patterns[i]);
    }
    once__templates_clear(templates);
}

/* What is compressed or sealed is like nothing else. */
static int is_plain(const once__payload_t *payload)
{
    return payload->len >= ONCE__PACK_MIN && payload->len <= ONCE__PACK_MAX &&
           payload->data[0] == 0;
}

static unsigned likeness(const once__templates_t *templates, unsigned i,
                         const once__payload_t *payload)
{
    return templates->offsets[i] == 0
               ? 0
               : once__pattern_likeness(&templates->patterns[i], payload->data, payload->len);
}

/* The template that is most like the payload; ONCE__TEMPLATES: none is. */
static unsigned choose(const once__templates_t *templates, const once__payload_t *payload)
{
    unsigned best = ONCE__TEMPLATES, most = ALIKE - 1;

    if (likeness(templates, templates->last, payload) >= ALIKE) {
        return templates->last;
    }
    for (unsigned i = 0; i < ONCE__TEMPLATES; i++) {
        unsigned hits = likeness(templates, i, payload);
        if (hits > most) {
            best = i;
            most = hits;
        }
    }
    return best;
}

size_t once__templates_pack(once__templates_t *templates, uint64_t offset,
                            const once__payload_t *payload, uint8_t *out, uint64_t *against)
{
    unsigned i = is_plain(payload) ? choose(templates, payload) : ONCE__TEMPLATES;

    if (i == ONCE__TEMPLATES) {
        return 0;
    }
    if (offset - templates->offsets[i] > REACH) {
        templates->offsets[i] = 0; /* this one takes its place */
        return 0;
    }
    templates->last = i;
    templates->used[i] = ++templates->clock;
    *against = templates->offsets[i];
    return once__pack(&templates->patterns[i], payload->data, payload->len, out);
}

void once__templates_offer(once__templates_t *templates, uint64_t offset,
                           const once__payload_t *payload)
{
    unsigned i = 0, oldest = 0;

    while (i < ONCE__TEMPLATES && templates->offsets[i] != 0) {
        oldest = templates->used[i] < templates->used[oldest] ? i : oldest;
        i++;
    }
    if (!is_plain(payload) || (i == ONCE__TEMPLATES && offset - templates->adopted < PAUSE)) {
        return;
    }
    i = i < ONCE__TEMPLATES ? i : oldest;
    if (once__pattern_set(&templates->patterns[i], payload->data, payload->len) != 0) {
        templates->offsets[i] = 0;
        return;
    }
    templates->offsets[i] = offset;
    templates->used[i] = ++templates->clock;
    templates->last = i;
    templates->adopted = offset;
}
