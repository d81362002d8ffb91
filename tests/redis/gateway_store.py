"""A pytest plugin: the gateway's tests with records in Redis. Each gateway that names no store gets a prefix of its own.

    with-server pytest -p gateway_store ../gateway/test_contract.py
"""
import itertools
import os

URL = os.environ["ONCE_REDIS_URL"]
numbers = itertools.count(1)
prefixes = {}


def in_redis(url):
    """What the harness gives a gateway by default is `local:DIRECTORY/store?segment=1m`; the same directory is the same store."""
    if not url.endswith("/store?segment=1m"):
        return url
    if url not in prefixes:
        prefixes[url] = f"{os.getpid()}-{next(numbers)}:"
    return f"{URL}{'&' if '?' in URL else '?'}prefix={prefixes[url]}"


def pytest_collection_modifyitems():
    from harness import gateway, store  # pylint: disable=import-outside-toplevel

    class Store(store.Store):
        def __init__(self, url):
            super().__init__(in_redis(url))

    gateway.Store = Store
