/*
 * Redis URLs: what they mean, and that what is wrong with them is named without showing a password.
 */
#include "support/testing.h"

#include <string.h>

#include "store/redis/handshake.h"
#include "store/redis/internal.h"
#include "store/redis/settings.h"

static int read_url(once__redis_settings_t *s, const char *text, once_error_t *err)
{
    once__url_t url;
    int code;

    memset(err, 0, sizeof(*err));
    assert_int_equal(once__url_parse(&url, "store URL", text, 0, err), ONCE_OK);
    code = once__redis_settings_read(s, &url, 5000, err);
    if (code == ONCE_OK && once__url_untaken(&url) != NULL) {
        once__redis_settings_free(s);
        snprintf(err->text, sizeof(err->text), "%s", once__url_untaken(&url));
        code = ONCE_E_CONFIG;
    }
    once__url_free(&url);
    return code;
}

static void a_plain_url(void **state)
{
    once__redis_settings_t s;
    once_error_t err;

    assert_int_equal(read_url(&s, "redis://host", &err), ONCE_OK);
    assert_int_equal(s.mode, ONCE__REDIS_SINGLE);
    assert_int_equal(s.host_count, 1);
    assert_string_equal(s.hosts[0].name, "host");
    assert_int_equal(s.hosts[0].port, 6379);
    assert_string_equal(s.prefix, "once:");
    assert_null(s.password);
    assert_int_equal(s.wait, 0);
    assert_int_equal(s.tls, 0);
    assert_int_equal(s.reply_ms, 2000);
    once__redis_settings_free(&s);
}

static void everything_that_a_url_can_say(void **state)
{
    once__redis_settings_t s;
    once_error_t err;

    assert_int_equal(
        read_url(&s,
                 "rediss://us%65r:p%40ss:word@[::1]:7000/5?prefix=a%3A&wait=2&wait_timeout=100ms"
                 "&connect_timeout=300ms&reply_timeout=400ms&ca=/ca&cert=/c&key=/k&tls_name=n"
                 "&eviction=accept",
                 &err),
        ONCE_OK);
    assert_string_equal(s.user, "user");
    assert_string_equal(s.password, "p@ss:word");
    assert_string_equal(s.hosts[0].name, "::1");
    assert_int_equal(s.hosts[0].port, 7000);
    assert_int_equal(s.database, 5);
    assert_string_equal(s.prefix, "a:");
    assert_int_equal(s.wait, 2);
    assert_int_equal(s.wait_ms, 100);
    assert_int_equal(s.connect_ms, 300);
    assert_int_equal(s.reply_ms, 400);
    assert_int_equal(s.tls, 1);
    assert_int_equal(s.accept_eviction, 1);
    once__redis_settings_free(&s);

    assert_int_equal(
        read_url(&s, "redis+sentinel://:secret@a,b:1234/records/3?tls=on&sentinel_password=x",
                 &err),
        ONCE_OK);
    assert_int_equal(s.mode, ONCE__REDIS_SENTINEL);
    assert_null(s.user);
    assert_string_equal(s.password, "secret");
    assert_int_equal(s.host_count, 2);
    assert_int_equal(s.hosts[0].port, 26379);
    assert_int_equal(s.hosts[1].port, 1234);
    assert_string_equal(s.service, "records");
    assert_int_equal(s.database, 3);
    once__redis_settings_free(&s);

    assert_int_equal(read_url(&s, "redis+cluster://a,b,c:7", &err), ONCE_OK);
    assert_int_equal(s.mode, ONCE__REDIS_CLUSTER);
    assert_int_equal(s.host_count, 3);
    once__redis_settings_free(&s);
}

static void what_is_wrong_is_named(void **state)
{
    static const struct {
        const char *url, *named;
    } wrong[] = {
        {"redis:host", "redis://HOST"},
        {"redis://", "host 1 is missing"},
        {"redis://user@host", "USER:PASSWORD"},
        {"redis://hunter2:hunter2%zz@host", NULL},
        {"redis://host:0", "host 1 has a port"},
        {"redis://host:x", "host 1 has a port"},
        {"redis://[::1", "without"},
        {"redis://a,b", "redis+sentinel:// or redis+cluster://"},
        {"redis://host/x", "database"},
        {"redis://host/70000", "database"},
        {"redis+cluster://a/1", "only database 0"},
        {"redis+sentinel://a", "master's name"},
        {"redis+sentinel://a/n?sentinel_user=u", "sentinel_password"},
        {"redis://host?wait=x", "wait"},
        {"redis://host?wait=101", "wait"},
        {"redis://host?wait=1&wait_timeout=3s", "wait_timeout"},
        {"redis://host?reply_timeout=1ms", "reply_timeout"},
        {"redis://host?connect_timeout=never", "connect_timeout"},
        {"redis://host?ca=/x", "rediss://"},
        {"rediss://host?cert=/x", "cert and key"},
        {"redis://host?tls=maybe", "tls"},
        {"redis://host?eviction=maybe", "eviction"},
        {"redis://host?sentinel_password=x", "sentinel_password"},
        {"redis://host?colour=red", "colour"},
        {"rediss://host?ca=", "ca: is empty"},
    };

    for (size_t i = 0; i < sizeof(wrong) / sizeof(wrong[0]); i++) {
        once__redis_settings_t s;
        once_error_t err = {0};
        once__url_t url;
        if (once__url_parse(&url, "store URL", wrong[i].url, 0, &err) != ONCE_OK) {
            assert_null(wrong[i].named); /* not even a URL */
            continue;
        }
        once__url_free(&url);
        assert_int_equal(read_url(&s, wrong[i].url, &err), ONCE_E_CONFIG);
        assert_null(strstr(err.text, "hunter2"));
        if (wrong[i].named != NULL && strstr(err.text, wrong[i].named) == NULL) {
            fail_msg("%s: %s", wrong[i].url, err.text);
        }
    }
}

/* From the cluster specification: known slots of known keys. */
static void keys_have_slots(void **state)
{
    assert_int_equal(once__redis_slot("123456789", 9), 0x31c3 % 16384);
    assert_int_equal(once__redis_slot("foo", 3), 12182);
    assert_int_equal(once__redis_slot("{user1000}.following", 20), once__redis_slot("user1000", 8));
    assert_int_equal(once__redis_slot("foo{}bar", 8), once__redis_slot("foo{}bar", 8));
    assert_int_not_equal(once__redis_slot("foo{}bar", 8), once__redis_slot("", 0));
}

static int judge(const char *info, once__redis_mode_t mode, char *trouble)
{
    once__redis_settings_t s = {.mode = mode};
    uint64_t max_bytes;

    trouble[0] = '\0';
    return once__redis_judge_info(info, &s, trouble, &max_bytes);
}

static void servers_are_judged(void **state)
{
#define GOOD "redis_version:7.0.15\r\nrole:master\r\nloading:0\r\n"
    char trouble[ONCE__REDIS_TROUBLE_SIZE];

    assert_int_equal(judge(GOOD, ONCE__REDIS_SINGLE, trouble), ONCE_OK);
    assert_int_equal(judge("redis_version:6.2.1\r\nrole:master\r\n", ONCE__REDIS_SINGLE, trouble),
                     ONCE_E_CONFIG);
    assert_non_null(strstr(trouble, "7.0"));
    assert_int_equal(judge("redis_version:7.0.0\r\nrole:slave\r\n", ONCE__REDIS_SINGLE, trouble),
                     ONCE_E_UNAVAILABLE);
    assert_int_equal(judge(GOOD "cluster_enabled:1\r\n", ONCE__REDIS_SINGLE, trouble),
                     ONCE_E_CONFIG);
    assert_non_null(strstr(trouble, "redis+cluster"));
    assert_int_equal(judge(GOOD "cluster_enabled:0\r\n", ONCE__REDIS_CLUSTER, trouble),
                     ONCE_E_CONFIG);
    assert_int_equal(judge(GOOD "maxmemory:1000\r\nmaxmemory_policy:noeviction\r\n",
                           ONCE__REDIS_SINGLE, trouble),
                     ONCE_OK);
    assert_int_equal(judge(GOOD "maxmemory:1000\r\nmaxmemory_policy:allkeys-lru\r\n",
                           ONCE__REDIS_SINGLE, trouble),
                     ONCE_E_CONFIG);
    assert_non_null(strstr(trouble, "allkeys-lru"));
    assert_int_equal(
        judge(GOOD "maxmemory:0\r\nmaxmemory_policy:allkeys-lru\r\n", ONCE__REDIS_SINGLE, trouble),
        ONCE_OK);
}

static void sizes_are_added_up(void **state)
{
    static const char info[] = "# Memory\r\nused_memory:1500\r\nused_memory_rss:9\r\n"
                               "# Keyspace\r\ndb0:keys=7,expires=5\r\ndb12:keys=30,expires=0\r\n";
    uint64_t keys = 100, bytes = 1000;

    once__redis_add_size(info, 12, &keys, &bytes);
    assert_int_equal(keys, 130);
    assert_int_equal(bytes, 2500);
    once__redis_add_size(info, 1, &keys, &bytes); /* INFO leaves empty ones out */
    assert_int_equal(keys, 130);
    once__redis_add_size("db0:keys\r\nused_memory:x\r\n", 0, &keys, &bytes);
    assert_int_equal(keys, 130);
    assert_int_equal(bytes, 4000);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_plain_url),
        cmocka_unit_test(everything_that_a_url_can_say),
        cmocka_unit_test(what_is_wrong_is_named),
        cmocka_unit_test(keys_have_slots),
        cmocka_unit_test(servers_are_judged),
        cmocka_unit_test(sizes_are_added_up),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
