#include "support/testing.h"

#include <stdio.h>
#include <string.h>

#include "base/bytes.h"
#include "core/identity.h"
#include "core/sha256_many.h"

#define TEXT(text) once__slice(text, strlen(text))

static once__secrets_t make_secrets(void)
{
    uint8_t random[2 * ONCE__SECRET_SIZE];
    once__secrets_t secrets;

    memset(random, 0x11, ONCE__SECRET_SIZE);
    memset(random + ONCE__SECRET_SIZE, 0x22, ONCE__SECRET_SIZE);
    once__secrets_make(&secrets, random, 1000);
    return secrets;
}

static once__request_t make_request(void)
{
    once__request_t request = {
        .scope = TEXT("tenant"),
        .method = TEXT("POST"),
        .target = TEXT("/orders?dry=0"),
        .body = {.mode = ONCE_BODY_MODE_EXACT},
    };
    memset(request.body.sum, 0xb0, sizeof(request.body.sum));
    return request;
}

static int same_id(const char *scope, const char *key, const char *other_scope,
                   const char *other_key)
{
    once__secrets_t secrets = make_secrets();
    uint8_t id[ONCE_ID_SIZE], other[ONCE_ID_SIZE];

    once__record_id(&secrets, TEXT(scope), TEXT(key), id);
    once__record_id(&secrets, TEXT(other_scope), TEXT(other_key), other);
    return memcmp(id, other, sizeof(id)) == 0;
}

static void the_same_scope_and_key_are_the_same_record(void **state)
{
    assert_true(same_id("tenant", "key", "tenant", "key"));
    assert_true(same_id("", "key", "", "key"));
}

static void parts_do_not_run_into_each_other(void **state)
{
    assert_false(same_id("ab", "c", "a", "bc"));
    assert_false(same_id("", "abc", "abc", ""));
    assert_false(same_id("a", "", "", "a"));
}

static void scopes_and_keys_are_kept_apart(void **state)
{
    assert_false(same_id("tenant", "key", "tenant2", "key"));
    assert_false(same_id("tenant", "key", "", "key"));
    assert_false(same_id("tenant", "key", "tenant", "Key"));
    assert_false(same_id("tenant", "key", "key", "tenant"));
}

/* Records live as long as their ids: the way they are made is as frozen as a format. */
static void ids_stay_the_same_for_ever(void **state)
{
    once__secrets_t secrets = make_secrets();
    uint8_t id[ONCE_ID_SIZE], hash[ONCE_SCOPE_HASH_SIZE];
    once__fingerprint_t prints[ONCE__FINGERPRINTS_MAX];
    once__request_t request = make_request();
    char hex[2 * ONCE_ID_SIZE + 1];

    once__record_id(&secrets, TEXT("tenant"), TEXT("key"), id);
    once__hex(hex, id, sizeof(id));
    assert_string_equal(hex, "a0b57489e5de488de42d75082b7510e8790267225157e327f05414849088bc02");
    once__scope_hash(&secrets, TEXT("tenant"), hash);
    once__hex(hex, hash, sizeof(hash));
    assert_string_equal(hex, "ef0394cd27c29964dd4898f5ef7956d5");
    assert_int_equal(once__fingerprints(&secrets, &request, prints), 1);
    once__hex(hex, prints[0].mac, sizeof(prints[0].mac));
    assert_string_equal(hex, "6541cc7da9d7ce135033b36e05528e3dc524328273922a2c54efc083369d1ec7");
}

static void another_installation_has_other_ids(void **state)
{
    once__secrets_t secrets = make_secrets(), others;
    uint8_t random[2 * ONCE__SECRET_SIZE] = {0};
    uint8_t id[ONCE_ID_SIZE], other[ONCE_ID_SIZE];

    once__secrets_make(&others, random, 1000);
    once__record_id(&secrets, TEXT("tenant"), TEXT("key"), id);
    once__record_id(&others, TEXT("tenant"), TEXT("key"), other);
    assert_memory_not_equal(id, other, sizeof(id));
}

static void a_rotation_changes_no_id(void **state)
{
    once__secrets_t secrets = make_secrets();
    uint8_t random[ONCE__SECRET_SIZE] = {0};
    uint8_t id[ONCE_ID_SIZE], later[ONCE_ID_SIZE];

    once__record_id(&secrets, TEXT("tenant"), TEXT("key"), id);
    once__secrets_rotate(&secrets, random, 2000, 0);
    once__record_id(&secrets, TEXT("tenant"), TEXT("key"), later);
    assert_memory_equal(id, later, sizeof(id));
}

/* What is made of the same bytes under the same secret for another purpose is something else. */
static void labels_keep_purposes_apart(void **state)
{
    once__secrets_t secrets = make_secrets();
    uint8_t hash[ONCE_SCOPE_HASH_SIZE], id[ONCE_ID_SIZE];
    once__fingerprint_t prints[ONCE__FINGERPRINTS_MAX];
    once__request_t request = make_request();
    uint8_t mac[ONCE__SHA256_SIZE];
    once__hmac_t ctx;

    once__scope_hash(&secrets, TEXT("tenant"), hash);
    once__record_id(&secrets, TEXT("tenant"), TEXT(""), id);
    assert_memory_not_equal(hash, id, sizeof(hash));

    secrets.fingerprints[0].key = secrets.record;
    once__fingerprints(&secrets, &request, prints);
    once__hmac_init(&ctx, &secrets.record);
    once__hmac_add_part(&ctx, TEXT("id"));
    once__hmac_add_part(&ctx, once__slice(&request.body.mode, 1));
    once__hmac_add_part(&ctx, request.scope);
    once__hmac_add_part(&ctx, request.method);
    once__hmac_add_part(&ctx, request.target);
    once__hmac_add_part(&ctx, once__slice(request.body.sum, sizeof(request.body.sum)));
    once__hmac_end(&ctx, mac);
    assert_memory_not_equal(prints[0].mac, mac, sizeof(mac));
}

static void scope_hashes_differ_by_scope(void **state)
{
    once__secrets_t secrets = make_secrets();
    uint8_t a[ONCE_SCOPE_HASH_SIZE], b[ONCE_SCOPE_HASH_SIZE];

    once__scope_hash(&secrets, TEXT("a"), a);
    once__scope_hash(&secrets, TEXT("b"), b);
    assert_memory_not_equal(a, b, sizeof(a));
    once__scope_hash(&secrets, TEXT("a"), b);
    assert_memory_equal(a, b, sizeof(a));
}

static void every_part_changes_the_fingerprint(void **state)
{
    once__secrets_t secrets = make_secrets();
    once__fingerprint_t first[ONCE__FINGERPRINTS_MAX], other[ONCE__FINGERPRINTS_MAX];
    once__request_t requests[6];

    for (int i = 0; i < 6; i++) {
        requests[i] = make_request();
    }
    requests[1].scope = TEXT("tenant2");
    requests[2].method = TEXT("PATCH");
    requests[3].target = TEXT("/orders?dry=1");
    requests[4].body.mode = ONCE_BODY_MODE_JSON;
    requests[5].body.sum[31] ^= 1;
    once__fingerprints(&secrets, &requests[0], first);
    for (int i = 1; i < 6; i++) {
        once__fingerprints(&secrets, &requests[i], other);
        assert_memory_not_equal(first[0].mac, other[0].mac, sizeof(first[0].mac));
        assert_int_equal(other[0].mode, requests[i].body.mode);
    }
    requests[0].scope = TEXT("tenantP");
    requests[0].method = TEXT("OST");
    once__fingerprints(&secrets, &requests[0], other);
    assert_memory_not_equal(first[0].mac, other[0].mac, sizeof(first[0].mac));
}

static void there_is_one_for_each_live_secret_newest_first(void **state)
{
    once__secrets_t secrets = make_secrets();
    once__fingerprint_t before[ONCE__FINGERPRINTS_MAX], prints[ONCE__FINGERPRINTS_MAX];
    once__request_t request = make_request();
    uint8_t random[ONCE__SECRET_SIZE] = {0};

    assert_int_equal(once__fingerprints(&secrets, &request, before), 1);
    assert_int_equal(before[0].secret, 1);
    once__secrets_rotate(&secrets, random, 2000, UINT64_MAX);
    assert_int_equal(once__fingerprints(&secrets, &request, prints), 2);
    assert_int_equal(prints[0].secret, 2);
    assert_int_equal(prints[1].secret, 1);
    assert_memory_equal(prints[1].mac, before[0].mac, sizeof(before[0].mac));
    assert_memory_not_equal(prints[0].mac, before[0].mac, sizeof(before[0].mac));
}

#define MANY 41

/* Some with another scope, with keys of other lengths, and with parts that are too long to be put together. */
static void many_at_a_time_are_the_same_as_each_alone(void **state)
{
    once__secrets_t secrets = make_secrets();
    once__fingerprint_t prints[MANY][ONCE__FINGERPRINTS_MAX], alone[ONCE__FINGERPRINTS_MAX];
    uint8_t ids[MANY][ONCE_ID_SIZE], id[ONCE_ID_SIZE], random[ONCE__SECRET_SIZE] = {0};
    once__identified_t many[MANY];
    char keys[MANY][8], target[300];

    once__secrets_rotate(&secrets, random, 2000, UINT64_MAX);
    memset(target, 't', sizeof(target));
    for (size_t i = 0; i < MANY; i++) {
        snprintf(keys[i], sizeof(keys[i]), "key-%zu", i);
        many[i] = (once__identified_t){make_request(), TEXT(keys[i]), ids[i], prints[i]};
        many[i].request.body.sum[3] = (uint8_t)i;
        many[i].request.body.mode = i % 11 == 5 ? ONCE_BODY_MODE_JSON : ONCE_BODY_MODE_EXACT;
        many[i].request.scope = i % 7 == 3 ? TEXT("other") : many[0].request.scope;
        many[i].request.target.len = i % 13 == 6 ? 0 : many[0].request.target.len;
        if (i % 5 == 4) {
            many[i].request.target = once__slice(target, sizeof(target));
        }
        if (i % 9 == 8) {
            many[i].key = once__slice(target, 206 + i);
        }
    }
    assert_int_equal(once__identify_many(&secrets, many, MANY), 2);
    for (size_t i = 0; i < MANY; i++) {
        once__record_id(&secrets, many[i].request.scope, many[i].key, id);
        assert_memory_equal(ids[i], id, sizeof(id));
        assert_int_equal(once__fingerprints(&secrets, &many[i].request, alone), 2);
        for (size_t j = 0; j < 2; j++) {
            assert_memory_equal(prints[i][j].mac, alone[j].mac, sizeof(alone[j].mac));
            assert_int_equal(prints[i][j].secret, alone[j].secret);
            assert_int_equal(prints[i][j].mode, alone[j].mode);
        }
    }
}

#define BATCHES 2000
#define BATCH   40

static uint64_t next_random(void)
{
    static uint64_t value = 88172645463325252u;

    value ^= value << 13;
    value ^= value >> 7;
    value ^= value << 17;
    return value;
}

/* Around the sizes at which a hash needs one block more, and at which a text is too long for many at a time. */
static once_slice_t random_slice(size_t least)
{
    static const size_t lengths[] = {0,   1,   7,   8,   55,  56,  63,  64,  65,
                                     119, 120, 127, 128, 129, 183, 184, 213, 214,
                                     230, 231, 239, 240, 247, 248, 249, 255, 256};
    static char bytes[3][300];
    size_t len = next_random() % 2 ? next_random() % 48
                                   : lengths[next_random() % (sizeof(lengths) / sizeof(*lengths))];

    if (bytes[0][0] == 0) {
        for (size_t i = 0; i < sizeof(bytes[0]); i++) { /* two of them are alike */
            bytes[0][i] = bytes[1][i] = (char)(next_random() | 1);
            bytes[2][i] = (char)next_random();
        }
    }
    return once__slice(bytes[next_random() % 3] + next_random() % 2, len < least ? least : len);
}

/* Each part of an ask may be that of the one before, or another one of any length. */
static void make_batch(once__identified_t *many, size_t count)
{
    unsigned varied = (unsigned)next_random();

    for (size_t i = 0; i < count; i++) {
        once__request_t *request = &many[i].request;
        once_slice_t *parts[] = {&request->scope, &request->method, &request->target};
        once_slice_t *last[] = {&many[i - (i > 0)].request.scope, &many[i - (i > 0)].request.method,
                                &many[i - (i > 0)].request.target};
        for (size_t part = 0; part < 3; part++) {
            int another = i == 0 || ((varied >> part & 1) && next_random() % 3 == 0);
            *parts[part] = another ? random_slice(0) : *last[part];
        }
        request->body.mode = i > 0 ? many[i - 1].request.body.mode : ONCE_BODY_MODE_EXACT;
        if ((varied >> 3 & 1) && next_random() % 4 == 0) {
            request->body.mode = (uint8_t)(next_random() % (ONCE_BODY_MODE_MULTIPART + 1));
        }
        for (size_t byte = 0; byte < sizeof(request->body.sum); byte++) {
            request->body.sum[byte] = (uint8_t)next_random();
        }
        many[i].key = random_slice(1);
    }
}

static void check_alone(const once__secrets_t *secrets, const once__identified_t *one)
{
    once__fingerprint_t alone[ONCE__FINGERPRINTS_MAX];
    uint8_t id[ONCE_ID_SIZE];
    unsigned count = once__fingerprints(secrets, &one->request, alone);

    once__record_id(secrets, one->request.scope, one->key, id);
    assert_memory_equal(one->id, id, sizeof(id));
    for (unsigned i = 0; i < count; i++) {
        assert_memory_equal(one->fingerprints[i].mac, alone[i].mac, sizeof(alone[i].mac));
        assert_int_equal(one->fingerprints[i].secret, alone[i].secret);
        assert_int_equal(one->fingerprints[i].mode, alone[i].mode);
    }
}

static void any_batch_is_the_same_as_each_alone(void **state)
{
    once__secrets_t secrets = make_secrets();
    once__fingerprint_t prints[BATCH][ONCE__FINGERPRINTS_MAX];
    uint8_t ids[BATCH][ONCE_ID_SIZE], random[ONCE__SECRET_SIZE] = {0};
    once__identified_t many[BATCH];

    for (unsigned batch = 0; batch < BATCHES; batch++) {
        size_t count = next_random() % BATCH + 1;
        if (batch % (BATCHES / 8) == 100) {
            random[0]++;
            once__secrets_rotate(&secrets, random, 2000 + batch, UINT64_MAX);
        }
        once__sha256_many_portable(batch % 8 == 0);
        make_batch(many, count);
        for (size_t i = 0; i < count; i++) {
            many[i].id = ids[i];
            many[i].fingerprints = prints[i];
        }
        assert_int_equal(once__identify_many(&secrets, many, count), secrets.count);
        for (size_t i = 0; i < count; i++) {
            check_alone(&secrets, &many[i]);
        }
    }
    once__sha256_many_portable(0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(many_at_a_time_are_the_same_as_each_alone),
        cmocka_unit_test(any_batch_is_the_same_as_each_alone),
        cmocka_unit_test(the_same_scope_and_key_are_the_same_record),
        cmocka_unit_test(parts_do_not_run_into_each_other),
        cmocka_unit_test(scopes_and_keys_are_kept_apart),
        cmocka_unit_test(ids_stay_the_same_for_ever),
        cmocka_unit_test(another_installation_has_other_ids),
        cmocka_unit_test(a_rotation_changes_no_id),
        cmocka_unit_test(labels_keep_purposes_apart),
        cmocka_unit_test(scope_hashes_differ_by_scope),
        cmocka_unit_test(every_part_changes_the_fingerprint),
        cmocka_unit_test(there_is_one_for_each_live_secret_newest_first),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
