"""Scopes of keys, and what else distinguishes two requests: values of several parts, passwords, and the answers to clients."""
import base64

import pytest

from harness import expect

PARTS = "once on; once_scope $http_x_a $http_x_b; proxy_pass http://backend;"


def two(gw, a, b, key="k", **options):
    headers = [(name, value) for name, value in (("X-A", a), ("X-B", b)) if value is not None]
    return gw.post(key, headers=headers, **options)


def test_parts_do_not_run_together(gateway):
    """One value with a space in between is the same for all of these; parts are not."""
    gw = gateway(guard=PARTS)
    pairs = [("x y", "z"), ("x", "y z"), ("xy", "z"), ("x", "yz"), ("1:x", "y"), ("1:x1:y", "z"), ("z", "x y")]
    originals = [expect.first(two(gw, *pair)) for pair in pairs]
    for pair, original in zip(pairs, originals):
        expect.replay(two(gw, *pair), original)
    assert gw.upstream.total == len(pairs)


def test_one_value_is_what_it_was(gateway):
    """Records that older versions made are found: one value goes in as it is, and never meets one of parts."""
    gw = gateway(guard="once on; once_scope $http_x_a; proxy_pass http://backend;",
                 server="location /two { %s }" % PARTS)
    expect.first(gw.post("k", headers=[("X-A", "alice")]))
    gw.store.run("keys", "show", gw.store.url, "--scope", "alice", "--key", "k")
    expect.first(two(gw, "1:x1:y", None, "j"))
    expect.first(two(gw, "x", "y", "j", target="/two"))
    assert gw.upstream.total == 3
    with open(f"{gw.directory}/scope", "wb") as file:
        file.write(b"\0" b"1:x1:y")  # as docs/directives.md says
    gw.store.run("keys", "show", gw.store.url, "--scope-file", file.name, "--key", "j")


def test_every_part_must_be_there(gateway):
    gw = gateway(guard=PARTS, server="location /o { once on; once_scope $http_x_a $http_x_b optional; proxy_pass http://backend; }")
    for a, b, missing in ((None, "b", "X-A"), ("a", None, "X-B"), (None, None, "X-A")):
        assert f"the header {missing} is missing" in expect.problem(two(gw, a, b), "scope-missing").json()["detail"]
    assert gw.upstream.total == 0
    originals = [expect.first(two(gw, a, b, target="/o")) for a, b in ((None, "b"), ("b", None), (None, None))]
    expect.replay(two(gw, "b", None, target="/o"), originals[1])


MISSING = {
    "$http_x_api_key": "the header X-Api-Key", "${http_x_api_key}": "the header X-Api-Key", "$cookie_session": "the cookie session",
    "$arg_account": "the query parameter account", "$remote_user": "the name of a user", "$tenant": "the value of $tenant",
    "'$tenant-$http_x'": "the value of $tenant-$http_x",
}


def test_what_is_missing_is_named(gateway):
    locations = "".join("location /%d { once on; once_scope %s; proxy_pass http://backend; }" % (number, scope)
                        for number, scope in enumerate(MISSING))
    gw = gateway(locations=locations, http="map $http_x_none $tenant { default ''; }")
    for number, told in enumerate(MISSING.values()):
        assert f": {told} is missing." in expect.problem(gw.post("k", target=f"/{number}"), "scope-missing").json()["detail"]
    assert gw.upstream.total == 0


# -------------------------------------------------------------------------------------------------------- passwords

BASIC = [("Authorization", "Basic " + base64.b64encode(b"alice:secret").decode())]
CREDENTIAL = "once on; once_scope $http_authorization %s; proxy_pass http://backend;"


@pytest.mark.parametrize("optional", ["", "optional"])
def test_password_is_no_scope(gateway, optional):
    """Its hash, and the secret beside it in the store, would be all that guessing needs. A token is not guessed."""
    gw = gateway(guard=CREDENTIAL % optional)
    for scheme in ("Basic", "basic", "BASIC"):
        header = [("Authorization", BASIC[0][1].replace("Basic", scheme))]
        response = expect.problem(gw.post("k", headers=header), "scope-missing")
        assert "password" in response.json()["detail"] and b"secret:" not in response.body
    expect.once(lambda: gw.post("k", headers=[("Authorization", "Bearer token")]))
    assert gw.upstream.total == 1


def test_password_is_a_scope_where_the_secrets_are_elsewhere(gateway):
    gw = gateway("once_secret_file @directory@/secrets;", guard=CREDENTIAL % "")
    expect.once(lambda: gw.post("k", headers=BASIC))


# ----------------------------------------------------------------------------------------------------- fingerprints

@pytest.mark.parametrize("mode", ["exact", "json"])
def test_values_of_the_fingerprint(gateway, mode):
    """A header that chooses on whose behalf a request acts makes it another request."""
    gw = gateway(f"once_fingerprint {mode} $http_x_account $host;")

    def post(account=None, **options):
        return gw.post("k", headers=[("X-Account", account)] if account else [], **options)

    original = expect.first(post("acct_1"))
    expect.replay(post("acct_1"), original)
    for response in (post("acct_2"), post(), post("acct_1", host="other.example"), post("acct_17:gateway")):
        expect.problem(response, "key-reused")
    assert gw.upstream.total == 1


def test_without_them_the_fingerprint_is_what_it_was(gateway):
    """The same record answers where nothing is added."""
    gw = gateway(server="location /x { once on; once_scope none; once_fingerprint exact; proxy_pass http://backend; }")
    original = expect.first(gw.post("k", target="/x", headers=[("X-Account", "a")]))
    expect.replay(gw.post("k", target="/x", headers=[("X-Account", "b")]), original)
