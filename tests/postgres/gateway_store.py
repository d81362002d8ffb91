"""A pytest plugin: the gateway's tests with records in PostgreSQL. Each gateway that names no store gets a database of its own.

    with-server ONCE pytest -p gateway_store ../gateway/test_contract.py
"""
import itertools
import os
import subprocess

URL = os.environ["ONCE_PG_GATEWAY_URL"]
numbers = itertools.count(1)
databases = {}


def in_postgres(url):
    """What the harness gives a gateway by default is `local:DIRECTORY/store?segment=1m`; the same directory is the same store."""
    if not url.endswith("/store?segment=1m"):
        return url
    if url not in databases:
        databases[url] = f"gateway{next(numbers)}"
        subprocess.run(["psql", "-X", "-q", "-d", "template1", "-c", f"CREATE DATABASE {databases[url]} TEMPLATE postgres"],
                       check=True)
    return URL.replace("/postgres?", f"/{databases[url]}?")


def pytest_collection_modifyitems():
    from harness import gateway, store  # pylint: disable=import-outside-toplevel

    class Store(store.Store):
        def __init__(self, url):
            super().__init__(in_postgres(url))

        def run(self, *arguments, **more):
            if arguments[:2] in (("keys", "settle"), ("keys", "purge")):  # a gateway's user may not add to the audit trail
                arguments = [argument.replace("//gateway@", "//owner@") for argument in arguments]
            return super().run(*arguments, **more)

    gateway.Store = Store
