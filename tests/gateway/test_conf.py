"""Configuration: what each directive accepts, what it refuses and how it says so, and what is inherited."""
import os
import re
import subprocess

import pytest

from harness import environment, expect
from harness.gateway import GUARD


def check_accepted(prepare, rules="", **options):
    gw = prepare(rules, **options)
    good, said = gw.nginx.test()
    assert good and "[warn]" not in said, said
    return gw


def check_refused(prepare, words, rules="", **options):
    """Refused, in one line that names what is wrong and where."""
    gw = prepare(rules, **options)
    good, said = gw.nginx.test()
    assert not good, f"{rules} {options} was accepted"
    lines = re.findall(r"\[emerg\] (.*)", said)
    assert len(lines) == 1, said
    for word in [words] if isinstance(words, str) else words:
        assert word in lines[0], f"{word!r} is not in: {lines[0]}"
    assert "AddressSanitizer" not in said and "runtime error" not in said, said


GOOD = [
    "once_name payments;",
    "once_store memory:;", "once_store local:elsewhere;", "once_store 'local:@directory@/x?segment=1m&durability=claims-relaxed';",
    "once_store_timeout 2s;", "once_store_timeout 500ms;",
    "once_secret_file secrets;", "once_secret_file off;",
    "once_methods POST;", "once_methods POST PUT PATCH DELETE;",
    "once_require on;", "once_require off;", "once_require $http_x_require;",
    "once_key Idempotency-Key;", "once_key X-Request-Id;", "once_key Idempotency-Key strict;", "once_key $http_x_id;",
    "once_key json:/params/_meta/idempotencyKey;", "once_key Idempotency-Key json:/a~1b/0 $http_x_id strict;",
    "once_key json:/ $arg_x;",
    "once_key $once_json_id;", "once_key 'webhook-$once_json_id-$arg_x';",
    "once_fingerprint exact;", "once_fingerprint json;", "once_fingerprint multipart;", "once_fingerprint none;",
    "once_fingerprint json $http_stripe_account $host;", "once_fingerprint exact '$http_a-$http_b';",
    "once_ttl 1s;", "once_ttl 48h;", "once_ttl 30d;", "once_ttl 3600;",
    "once_lease 10ms;", "once_lease 30s;", "once_lease 5m;",
    "once_recover retry;", "once_recover hold;",
    "once_record all;", "once_record 2xx;", "once_record 2xx,3xx,4xx,!404;", "once_record 2xx 400-410 422;", "once_record 200;",
    "once_release none;", "once_release 401,403;", "once_release 401 503;",
    "once_release_ttl 60s;", "once_release_ttl 5m;", "once_release_ttl 1s; once_lease 500ms;", "once_ttl 1s; once_release_ttl 1h;",
    "once_wait off;", "once_wait 5s;", "once_wait 500ms max=100;",
    "once_store_body off;", "once_store_body 1;", "once_store_body 64k;", "once_store_body 16m;",
    "once_store_no_store on;", "once_store_no_store off;",
    "once_describe off;", "once_describe path;", "once_describe 'payments of $host';",
    "once_mcp off;", "once_mcp all;", "once_mcp all !get_* !search;", "once_mcp pay refund_*;",
    "once_redact off;", "once_redact X-Token;", "once_redact /card/number /items/*/iban X-Token;", "once_redact /a~1b~0c;",
    "once_subject off;", "once_subject $remote_user;",
    "once_quota 1/1s;", "once_quota 1000/1h;", "once_quota 1000000/31d;", "once_quota off;",
    "once_unknown_max 1;", "once_unknown_max 10000;", "once_unknown_max off;",
    "once_retry_after auto;", "once_retry_after 1;", "once_retry_after 30s;",
    "once_early_lookup on;", "once_early_lookup off;",
    "once_on_store_error fail;", "once_on_store_error pass;",
    "once_replay_header X-Again;", "once_replay_header off;",
    "once_replay_headers Set-Cookie;", "once_replay_headers Set-Cookie Date;", "once_replay_headers none;",
    "once_docs https://example.com/keys;", "once_docs off;", "once_authorize /authorize;", "once_authorize off;",
    "once_probe http://127.0.0.1:9/outcome;", "once_probe http://unix:/run/x.sock:/outcome;", "once_probe off;",
    "once_profile default;", "once_profile draft07;", "once_profile stripe;", "once_profile acp;", "once_profile ucp;",
    "once_profile iceberg;",
    "once_error key-reused status=400;", "once_error key-reused status=400 code=x type=y; once_error key-missing 'code=a b';",
    "once_error_body problem;", "once_error_body $once_error_detail;", "once_error_body $once_error_detail text/plain;",
    "once_error_header X-Retry $once_error_retryable;", "once_error_header off;",
    "once_echo_key Idempotency-Key;", "once_echo_key off;", "once_expires_header X-Until;", "once_expires_header off;",
    "once_key_format any;", "once_key_format uuid;", "once_key_format uuid4;", "once_key_format uuid7;", "once_key_format min=22;",
    "once_scope_path on;", "once_scope_path off;",
    "once_probe http://127.0.0.1:9/outcome timeout=500ms;", "once_probe http://127.0.0.1:9/outcome timeout=2s size=64k;",
]


BAD_PROFILES = {
    "once_profile_define x { once_store memory:; }": ["once_store", "part of a profile"],
    "once_profile_define x { proxy_pass http://backend; }": ["proxy_pass", "part of a profile"],
    "once_profile_define x { once_ttl; }": ["once_ttl", "number of arguments"],
    "once_profile_define x { once_ttl 1h 2h; }": ["once_ttl", "number of arguments"],
    "once_profile_define x { once_ttl forever; }": "forever",
    "once_profile_define x { once_ttl 1h; once_ttl 2h; }": ["once_ttl", "duplicate"],
    "once_profile_define x nobody { }": "nobody",
    "once_profile_define stripe { }": "name of a profile",
    "once_profile_define x { } once_profile_define x { }": "name of a profile",
    "once_profile_define 'a b' { }": "a b",
    "once_profile x; once_profile_define x { }": "unknown profile",
}


@pytest.mark.parametrize("text", BAD_PROFILES)
def test_profiles_refused(prepare, text):
    check_refused(prepare, BAD_PROFILES[text], http=text)


@pytest.mark.parametrize("rules", GOOD)
def test_accepted(prepare, rules):
    check_accepted(prepare, rules)


BAD = {
    "once_store;": "number of arguments",
    "once_store nonsense;": "once_store",
    "once_store redis;": "once_store",
    "once_store 'local:@directory@/x?segmant=1m';": "segmant",
    "once_store 'local:@directory@/x?durability=none';": "durability",
    "once_store '';": "once_store",
    "once_store_timeout soon;": "once_store_timeout",
    "once_store_timeout 0;": "once_store_timeout",
    "once_methods;": "number of arguments",
    "once_methods NONSENSE;": "NONSENSE",
    "once_require maybe;": "maybe",
    "once_key 'two words';": "two words",
    "once_key Idempotency-Key lax;": "lax",
    "once_key json:a;": "begins with /",
    "once_key json:/a~2;": "followed",
    "once_key json:/1/2/3/4/5/6/7/8/9/10/11/12/13/14/15/16/17;": "16 names",
    "once_key $uri $uri $uri $uri $uri $uri $uri $uri $uri;": "8 sources",
    "once_key X-Id derive=10m $arg_x;": "last",
    "once_key X-Id derive=2d;": "derive=2d",
    "once_key X-Id derive=soon;": "derive=soon",
    "once_key X-Id derive=10m;": ["derive", "once_scope"],
    "once_key '';": "once_key",
    "once_key $no_such_variable;": "no_such_variable",
    "once_fingerprint md5;": "md5",
    "once_fingerprint exact Host;": "Host",
    "once_fingerprint exact $no_such_variable;": "no_such_variable",
    "once_fingerprint exact $uri $uri $uri $uri $uri $uri $uri $uri $uri;": "8 values",
    "once_profile strype;": ["strype", "stripe", "once_profile_define"],
    "once_profile acp; once_profile ucp;": "duplicate",
    "once_error nonsense status=400;": "nonsense",
    "once_error key-reused;": "number of arguments",
    "once_error key-reused status=200;": "status=200",
    "once_error key-reused status=x;": "status=x",
    "once_error key-reused colour=red;": "colour=red",
    "once_error key-reused code=a; once_error key-reused code=b;": "duplicate",
    "once_error_body nonsense;": "nonsense",
    "once_error_body $once_error_detail 'a b';": "a b",
    "once_error_body $no_such_variable;": "no_such_variable",
    "once_echo_key 'a b';": "a b",
    "once_error_header X-Retry;": "X-Retry",
    "once_error_header 'a b' c;": "a b",
    "once_expires_header 'a b';": "a b",
    "once_key_format guid;": "guid",
    "once_key_format min=0;": "min=0",
    "once_key_format min=256;": "min=256",
    "once_scope_path maybe;": "maybe",
    "once_ttl forever;": "forever",
    "once_ttl 0;": "0",
    "once_ttl 10000d;": "10000d",
    "once_lease 1ms;": "1ms",
    "once_lease 2d;": "2d",
    "once_lease -1s;": "-1s",
    "once_recover sometimes;": "sometimes",
    "once_record 6xx0;": "6xx0",
    "once_record none;": "none",
    "once_release 4040;": "4040",
    "once_release_ttl soon;": "release_ttl",
    "once_release_ttl 59s;": ["once_release_ttl", "twice", "once_lease"],
    "once_release_ttl 5m; once_lease 151s;": ["once_release_ttl", "twice", "once_lease"],
    "once_wait 5parsecs;": "5parsecs",
    "once_wait 0;": "once_wait",
    "once_wait 5s max=0;": "max=0",
    "once_wait 5s least=1;": "least=1",
    "once_store_body 17m;": "17m",
    "once_store_body -1;": "-1",
    "once_store_body all;": "all",
    "once_store_no_store sometimes;": "sometimes",
    "once_describe '';": "off, path",
    "once_describe $no_such_variable;": "no_such_variable",
    "once_subject ada;": "variable",
    "once_mcp !get;": "only exceptions",
    "once_mcp 'a*b';": "name of a tool",
    "once_mcp '';": "name of a tool",
    "once_mcp all; once_mcp all;": "duplicate",
    "once_redact '';": "JSON pointer",
    "once_redact 'X Y';": "X Y",
    "once_redact card.number!;": "card.number",
    "once_redact /a~2;": "followed",
    "once_redact /1/2/3/4/5/6/7/8/9/10/11/12/13/14/15/16/17;": "16 names",
    "once_quota 0/1h;": "0/1h",
    "once_quota 10;": "NUMBER/TIME",
    "once_quota 10/;": "NUMBER/TIME",
    "once_quota /1h;": "NUMBER/TIME",
    "once_quota 10/1ms;": "NUMBER/TIME",
    "once_quota 10/32d;": "NUMBER/TIME",
    "once_quota 1000001/1h;": "NUMBER/TIME",
    "once_unknown_max 0;": "1 to 10000",
    "once_unknown_max 10001;": "1 to 10000",
    "once_unknown_max many;": "many",
    "once_retry_after 0;": "0",
    "once_retry_after never;": "never",
    "once_early_lookup maybe;": "maybe",
    "once_on_store_error ignore;": "ignore",
    "once_replay_header 'X Y';": "X Y",
    "once_replay_header 'X:';": "X:",
    "once_replay_headers Connection;": "onnection",
    "once_replay_headers Transfer-Encoding;": "ransfer-",
    "once_replay_headers 'X Y';": "x y",
    "once_docs 'https://example.com/a b';": "a b",
    "once_docs 'https://example.com/\"';": "once_docs",
    "once_authorize http://example.com/;": "http://example.com/",
    "once_authorize '/a b';": "/a b",
    "once_authorize $uri;": "$uri",
    "once_authorize /a?b;": "/a?b",
    "once_authorize '';": "once_authorize",
    "once_probe nonsense;": "nonsense",
    "once_probe https://example.com/;": "https",
    "once_probe ftp://example.com/;": "ftp",
    "once_on;": "unknown directive",
}


@pytest.mark.parametrize("rules", BAD)
def test_refused(prepare, rules):
    check_refused(prepare, BAD[rules], rules)


def test_on_or_off(prepare):
    check_refused(prepare, "once", guard="once maybe; once_scope none; proxy_pass http://backend;")


def test_memory_is_a_worker_s(prepare):
    check_accepted(prepare, http="once_memory 33m;")
    check_accepted(prepare, http="once_memory 2g;")
    check_refused(prepare, "at least 33m", http="once_memory 32m;")
    check_refused(prepare, "at least 33m", http="once_memory much;")
    check_refused(prepare, "duplicate", http="once_memory 64m; once_memory 64m;")
    check_refused(prepare, "not allowed here", "once_memory 64m;")
    check_accepted(prepare, http="once_bodies 2g;")
    check_accepted(prepare, http="once_bodies off;")
    check_refused(prepare, "a size such as 1g", http="once_bodies 0;")
    check_refused(prepare, "a size such as 1g", http="once_bodies all;")
    check_refused(prepare, "duplicate", http="once_bodies off; once_bodies off;")


TWICE = ["once on;", "once_store memory:;", "once_scope none;", "once_key X;", "once_require on;", "once_methods POST;",
         "once_ttl 1h;", "once_lease 5s;", "once_recover hold;", "once_record all;", "once_release none;", "once_release_ttl 2m;",
         "once_wait 1s;", "once_quota 1/1h;", "once_unknown_max 1;", "once_store_body 1k;", "once_store_no_store on;",
         "once_retry_after 5;",
         "once_early_lookup on;", "once_on_store_error fail;", "once_replay_header X;", "once_replay_headers X;",
         "once_docs https://x;", "once_authorize /a;", "once_probe http://127.0.0.1:9/;", "once_fingerprint exact;",
         "once_store_timeout 1s;", "once_secret_file s;", "once_name n;"]


@pytest.mark.parametrize("directive", TWICE)
def test_refused_when_it_stands_twice(prepare, directive):
    rules = directive * (1 if directive.split()[0] in ("once", "once_scope") else 2)  # those stand in the guard already
    check_refused(prepare, "duplicate", rules)


EVERYWHERE = [rules for rules in GOOD if not rules.startswith(("once_name", "once_store memory", "once_store 'l", "once_store l"))]


@pytest.mark.parametrize("level", ["http", "server"])
@pytest.mark.parametrize("rules", EVERYWHERE)
def test_accepted_at_every_level(prepare, level, rules):
    check_accepted(prepare, **{level: rules})


# ---------------------------------------------------------------------------------------------------------- inheritance

def test_everything_can_stand_at_the_top(gateway):
    gw = gateway(http="once on; once_scope none; once_ttl 1h; once_replay_header X-Again; once_methods PUT;",
                 locations="location / { proxy_pass http://backend; } location /off { once off; proxy_pass http://backend; }")
    original = expect.first(gw.request("PUT", "/", "k", b"a"), ttl=3600)
    response = gw.request("PUT", "/", "k", b"a")
    assert response.body == original.body and response.header("X-Again") == "true"
    for _ in range(2):
        expect.unrecorded(gw.request("PUT", "/off", "k2", b"a"), 201)
    assert gw.upstream.count("k") == 1 and gw.upstream.count("k2") == 2


def test_the_inner_level_wins_and_the_rest_is_inherited(gateway):
    gw = gateway(http="once_ttl 1h; once_replay_header X-Http; once_record all;",
                 server="once_ttl 2h; once_require off;",
                 locations="location / { %s once_replay_header X-Here; location /deeper { %s once_ttl 3h; } }" % (GUARD, GUARD))
    expect.first(gw.post("k"), ttl=7200)
    assert gw.post("k").header("X-Here") == "true"
    gw.upstream.then(lambda exchange: exchange.respond(500))
    expect.first(gw.post("d", target="/deeper"), 500, ttl=10800)  # once_record all, of http
    response = gw.post("d", target="/deeper")
    assert response.status == 500 and response.header("X-Here") == "true"
    expect.unrecorded(gw.post(target="/deeper"), 201)  # once_require off, of server
    assert gw.upstream.count("k") == 1 and gw.upstream.count("d") == 1


def test_lists_are_replaced_and_not_joined(gateway):
    gw = gateway(http="once_replay_headers Set-Cookie; once_release 401 503;", rules="once_replay_headers none; once_release none;")
    gw.upstream.default = lambda exchange: exchange.respond(401, [("Set-Cookie", "a=1")])
    expect.first(gw.post("k"), 401)
    assert "Set-Cookie" not in gw.post("k").headers
    assert gw.upstream.count("k") == 1


def test_off_inside_of_on(gateway):
    gw = gateway(locations="location / { %s location /in { once off; proxy_pass http://backend; } }" % GUARD)
    for _ in range(2):
        expect.unrecorded(gw.post("k", target="/in"), 201)
    original = expect.first(gw.post("k"))
    expect.replay(gw.post("k"), original)
    assert gw.upstream.count("k") == 3


def test_if_block_inherits(gateway):
    gw = gateway("if ($arg_x) { proxy_pass http://backend; }")
    original = expect.first(gw.post("k", target="/?x=1"))
    expect.replay(gw.post("k", target="/?x=1"), original)
    assert gw.upstream.count("k") == 1


# ----------------------------------------------------------------------------------------------------- what is refused

def test_scope_must_be_named(prepare):
    check_refused(prepare, ["once_scope", "once_scope none"], guard="once on; proxy_pass http://backend;")


@pytest.mark.parametrize("scope", ["once_scope fixed;", "once_scope '';", "once_scope $http_x required;", "once_scope;"])
def test_scope_must_tell_callers_apart(prepare, scope):
    check_refused(prepare, "once_scope", scope, guard="once on; proxy_pass http://backend;")


def test_store_must_be_named(prepare):
    gw = prepare()
    gw.nginx.write(re.sub("once_store .*;", "", gw.configuration()))
    good, said = gw.nginx.test()
    assert not good and "once_store" in said, said


def test_nothing_is_needed_where_once_is_off(prepare):
    gw = prepare(guard="proxy_pass http://backend;")
    gw.nginx.write(re.sub("once_store .*;", "", gw.configuration()))
    good, said = gw.nginx.test()
    assert good, said


@pytest.mark.parametrize("recover", ["hold", "transactional"])
@pytest.mark.parametrize("rules, word", [
    ("once_on_store_error pass;", "once_on_store_error"),
    ("once_fingerprint none;", "once_fingerprint"),
    ("once_store 'local:@directory@/x?durability=claims-relaxed';", "durability"),
])
def test_strict_policies_refuse_what_weakens_them(prepare, recover, rules, word):
    check_refused(prepare, [word, recover], f"once_recover {recover}; {rules}")


def test_transactional_needs_what_a_transaction_can_reach(prepare):
    for store in ("local:@directory@/x", "redis://127.0.0.1:9"):
        check_refused(prepare, ["postgres://", "transactional"], f"once_recover transactional; once_store '{store}';")
    for store in ("postgres://gateway@127.0.0.1:9/x", "postgresql://gateway@127.0.0.1:9/x"):
        check_accepted(prepare, f"once_recover transactional; once_store '{store}';")


def test_transactional_with_encryption_reads_what_sql_records(prepare, directory):
    keys = f"{directory}/keys"
    with open(os.open(keys, os.O_WRONLY | os.O_CREAT, 0o600), "w", encoding="ascii") as file:
        file.write("1 " + "5a" * 32 + "\n")
    url = f"postgres://127.0.0.1/x?encrypt=file:{keys}"
    check_refused(prepare, ["encrypt", "encrypt_require=off"], f"once_recover transactional; once_store '{url}';")
    check_accepted(prepare, f"once_recover transactional; once_store '{url}&encrypt_require=off';")
    check_accepted(prepare, f"once_recover hold; once_store '{url}';")


def test_strict_policies_refuse_it_also_when_inherited(prepare):
    check_refused(prepare, "once_on_store_error", "once_recover hold;", http="once_on_store_error pass;")
    check_refused(prepare, "once_fingerprint", "once_fingerprint none;", server="once_recover hold;")


@pytest.mark.parametrize("module", ["proxy", "fastcgi", "uwsgi", "scgi"])
def test_non_idempotent_is_refused(prepare, module):
    scheme = "http://" if module == "proxy" else ""
    guard = f"once on; once_scope none; {module}_pass {scheme}backend;"
    check_refused(prepare, "non_idempotent", f"{module}_next_upstream error non_idempotent;", guard=guard)
    check_accepted(prepare, f"{module}_next_upstream error timeout;", guard=guard)


def test_non_idempotent_is_refused_when_inherited(prepare):
    check_refused(prepare, "non_idempotent", http="proxy_next_upstream error non_idempotent;")


def test_non_idempotent_is_fine_where_once_is_off(prepare):
    check_accepted(prepare, locations="location / { proxy_pass http://backend; proxy_next_upstream error non_idempotent; }"
                                      "location /g { %s }" % GUARD)


def test_grpc_is_refused(prepare):
    check_refused(prepare, "grpc_pass", guard="once on; once_scope none; grpc_pass grpc://backend;")


def test_return_is_refused(prepare):
    check_refused(prepare, "return", guard="once on; once_scope none; return 201;")


def test_send_timeout_below_the_stores_is_refused(prepare):
    check_refused(prepare, "send_timeout", "send_timeout 1s; once_store_timeout 2s;")
    check_refused(prepare, "send_timeout", "once_store_timeout 2m;")


def test_memory_with_several_workers_is_refused(prepare):
    check_refused(prepare, "memory:", workers=2, store="memory:")
    check_accepted(prepare, workers=1, store="memory:")


def test_status_belongs_into_a_location(prepare):
    check_refused(prepare, "once_status", http="once_status;")
    check_refused(prepare, "once_status", server="once_status;")
    check_accepted(prepare, locations="location /s { once_status; }")


def test_guarding_the_status_is_harmless(gateway):
    gw = gateway(http="once on; once_scope none;",
                 locations="location / { proxy_pass http://backend; } location /s { once_status; }")
    assert gw.request("GET", "/s").status == 200
    assert gw.upstream.total == 0


def test_scope_none_needs_no_optional(prepare):
    check_accepted(prepare, guard="once on; once_scope none; proxy_pass http://backend;")


# ------------------------------------------------------------------------------------------------------------- the rest

def test_module_is_harmless_when_it_is_only_loaded(gateway):
    gw = gateway(guard="proxy_pass http://backend;")
    for _ in range(2):
        assert gw.post("k").status == 201
    assert gw.upstream.count("k") == 2
    assert not os.path.exists(f"{gw.directory}/store")


def test_store_path_is_relative_to_the_prefix(gateway):
    gw = gateway(store="local:below")
    original = expect.first(gw.post("k"))
    expect.replay(gw.post("k"), original)
    assert os.path.isdir(f"{gw.directory}/below")
    assert gw.upstream.count("k") == 1


def test_secret_file(gateway):
    """Created by the first process, for its owner alone; with it the same key is found again."""
    gw = gateway("once_secret_file @directory@/secrets;")
    original = expect.first(gw.post("k"))
    path = f"{gw.directory}/secrets"
    assert os.stat(path).st_mode & 0o777 == 0o600
    gw.nginx.wait_worker_gone(*gw.nginx.reload())
    expect.replay(gw.post("k"), original)
    assert gw.upstream.count("k") == 1


@pytest.mark.skipif(not environment.ROOT, reason="only root can start workers of another user")
def test_workers_of_another_user(gateway):
    """The usual way: a master of root, workers of www-data. The store belongs to the user of the workers alone."""
    gw = gateway()
    gw.nginx.quit()
    subprocess.run(["chmod", "-R", "a+rX", os.path.dirname(gw.directory)], check=True)
    subprocess.run(["rm", "-rf", f"{gw.directory}/store"], check=True)
    gw.nginx.write(gw.configuration().replace("user root;", "user www-data;"))
    gw.start()
    original = expect.first(gw.post("k"))
    expect.replay(gw.post("k"), original)
    status = os.stat(f"{gw.directory}/store")
    assert status.st_mode & 0o777 == 0o700 and status.st_uid != 0
    assert gw.upstream.count("k") == 1


@pytest.mark.skipif(not environment.ROOT, reason="only root can start workers of another user")
def test_directory_that_is_replaced_while_it_is_made(prepare):
    """By a user with write access to the directory above: root gives nothing away but what it made itself."""
    gw = prepare(disk=True)
    subprocess.run(["chmod", "-R", "a+rX", os.path.dirname(gw.directory)], check=True)
    gw.nginx.write(gw.configuration().replace("user root;", "user www-data;"))
    target = gw.disk.link()
    gw.nginx.expect("cannot be opened|cannot be made")
    gw.start()
    assert os.path.islink(f"{gw.directory}/store") and os.stat(target).st_uid == 0
    gw.nginx.log.wait("cannot create the directory of")


def test_two_stores(gateway):
    """The same key, two servers: nothing in common."""
    gw = gateway(locations="location / { %s } location /b { %s once_store local:@directory@/other?segment=1m; }" % (GUARD, GUARD))
    one = expect.first(gw.post("k", target="/"))
    two = expect.first(gw.post("k", target="/b"))
    assert one.body != two.body
    expect.replay(gw.post("k", target="/"), one)
    expect.replay(gw.post("k", target="/b"), two)
    assert gw.upstream.count("k") == 2
    assert len(gw.store.records()) == 1


def test_test_of_the_configuration_makes_nothing(prepare):
    gw = check_accepted(prepare)
    assert not os.path.exists(f"{gw.directory}/store"), "nginx -t made a store"
