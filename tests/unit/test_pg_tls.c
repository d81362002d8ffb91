/*
 * Which servers have to show a certificate, and how to configure otherwise.
 */
#include "support/testing.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "pg/tls.h"

/* The sslmode that is added for a URL; "": none. */
static const char *added(const char *url)
{
    static once__pg_tls_t tls;
    const char *keywords[] = {"dbname", NULL, NULL, NULL}, *values[] = {url, NULL, NULL, NULL};

    once__pg_tls_add(&tls, keywords, values);
    if (tls.sslmode != NULL) {
        assert_string_equal(keywords[1], "sslmode");
        assert_string_equal(values[1], tls.sslmode);
    } else {
        assert_null(keywords[1]);
    }
    return tls.sslmode != NULL ? tls.sslmode : "";
}

static int set_up(void **state)
{
    static const char *const names[] = {"PGHOST",        "PGHOSTADDR", "PGSSLMODE",
                                        "PGREQUIRESSL",  "PGSERVICE",  "PGSERVICEFILE",
                                        "PGSSLROOTCERT", "PGPORT"};

    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
        (void)unsetenv(names[i]);
    }
    return 0;
}

static void this_machine_need_not(void **state)
{
    static const char *const urls[] = {
        "postgres:///app",
        "postgres://localhost/app",
        "postgres://LocalHost:5433/app",
        "postgres://127.0.0.1/app",
        "postgres://127.8.9.10/app",
        "postgres://[::1]/app",
        "postgres://[::ffff:127.0.0.1]/app",
        "postgres:///app?host=/run/postgresql",
        "postgres:///app?host=@abstract",
        "postgres://db/app?hostaddr=127.0.0.1",
        "postgres://localhost:1,127.0.0.1:2/app",
        "host=localhost dbname=app",
    };

    for (size_t i = 0; i < sizeof(urls) / sizeof(urls[0]); i++) {
        assert_string_equal(added(urls[i]), "");
    }
}

static void any_other_must(void **state)
{
    static const char *const urls[] = {
        "postgres://db/app",
        "postgres://db.localhost.example/app",
        "postgres://10.0.0.1/app",
        "postgres://128.0.0.1/app",
        "postgres://[fe80::1]/app",
        "postgres://[::ffff:10.0.0.1]/app",
        "postgres://localhost/app?hostaddr=10.0.0.1",
        "postgres://localhost:1,db:2/app", /* one of several is enough */
        "postgres:///app?host=/run/postgresql,db",
        "postgres:///app?hostaddr=127.0.0.1,10.0.0.1",
    };

    for (size_t i = 0; i < sizeof(urls) / sizeof(urls[0]); i++) {
        assert_string_equal(added(urls[i]), "verify-full");
    }
}

static void whoever_says_something_is_believed(void **state)
{
    static const char *const modes[] = {"disable", "allow", "prefer", "require", "verify-ca"};
    char url[100];

    for (size_t i = 0; i < sizeof(modes) / sizeof(modes[0]); i++) {
        snprintf(url, sizeof(url), "postgres://db/app?sslmode=%s", modes[i]);
        assert_string_equal(added(url), "");
        (void)setenv("PGSSLMODE", modes[i], 1);
        assert_string_equal(added("postgres://db/app"), "");
        (void)unsetenv("PGSSLMODE");
    }
}

static void the_environment_and_service_files_count(void **state)
{
    char path[] = "/tmp/once-service-XXXXXX";
    int fd = mkstemp(path);
    FILE *file = fdopen(fd, "w");

    assert_non_null(file);
    fputs("[far]\nhost=db\n[decided]\nhost=db\nsslmode=require\n[near]\nhost=localhost\n", file);
    assert_int_equal(fclose(file), 0);
    (void)setenv("PGSERVICEFILE", path, 1);
    assert_string_equal(added("postgres:///app?service=far"), "verify-full");
    assert_string_equal(added("postgres:///app?service=decided"), "");
    assert_string_equal(added("postgres:///app?service=near"), "");
    (void)setenv("PGSERVICE", "far", 1);
    assert_string_equal(added("postgres:///app"), "verify-full");
    (void)unsetenv("PGSERVICE");
    (void)setenv("PGHOST", "db", 1);
    assert_string_equal(added("postgres:///app"), "verify-full");
    assert_string_equal(added("postgres://localhost/app"), "");
    (void)unsetenv("PGHOST");
    (void)unsetenv("PGSERVICEFILE");
    (void)unlink(path);
}

static void advice_is_for_its_own_complaints(void **state)
{
    const once__pg_tls_t none = {NULL, ""}, full = {"verify-full", ""};
    const char *complaint = "SSL error: certificate verify failed";

    assert_string_equal(once__pg_tls_advice(&none, complaint), "");
    assert_string_equal(once__pg_tls_advice(&full, "Connection refused"), "");
    assert_non_null(strstr(once__pg_tls_advice(&full, complaint), "sslrootcert=FILE"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(this_machine_need_not, set_up),
        cmocka_unit_test_setup(any_other_must, set_up),
        cmocka_unit_test_setup(whoever_says_something_is_believed, set_up),
        cmocka_unit_test_setup(the_environment_and_service_files_count, set_up),
        cmocka_unit_test_setup(advice_is_for_its_own_complaints, set_up),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
