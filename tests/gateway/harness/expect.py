"""What answers of the gateway have in common. Tests say which; here is what that means in all its parts."""
import email.utils
import time

# Not compared between an answer and its replay: hop-by-hop, generated for every message, or about the replay itself.
OWN = {"connection", "keep-alive", "date", "server", "transfer-encoding", "content-length", "idempotent-replayed",
       "idempotency-expires", "set-cookie"}


def lasting(response):
    """The header fields that a replay must repeat."""
    return sorted((name.lower(), value) for name, value in response.headers if name.lower() not in OWN)


def expires(response):
    """Seconds until the time in Idempotency-Expires."""
    text = response.header("Idempotency-Expires")
    assert text, f"no Idempotency-Expires: {response}"
    assert text.endswith(" GMT"), text
    return email.utils.parsedate_to_datetime(text).timestamp() - time.time()


def plain(response):
    """Nothing of the gateway's inside, nothing of the backend's words to it."""
    for name, _ in response.headers:
        assert not name.lower().startswith("once-") or name.lower() == "once-body", f"{name} leaked: {response}"


def first(response, status=201, ttl=86400):
    """Answered by the backend just now, and recorded."""
    assert response.status == status, response
    assert "Idempotent-Replayed" not in response.headers, response
    assert abs(expires(response) - ttl) < 30, response
    plain(response)
    return response


def unrecorded(response, status):
    """Answered by the backend just now, and not kept."""
    assert response.status == status, response
    assert "Idempotent-Replayed" not in response.headers, response
    assert "Idempotency-Expires" not in response.headers, response
    plain(response)
    return response


def replay(response, original):
    """The same answer, byte by byte, said to be a repetition."""
    assert response.status == original.status, (response, original)
    assert response.header("Idempotent-Replayed") == "true", response
    assert response.body == original.body, (response, original)
    assert lasting(response) == lasting(original), (response, original)
    assert abs(expires(response) - expires(original)) < 2, (response, original)
    plain(response)
    return response


def once(post, **options):
    """Calls it twice: it runs, and then it is replayed. The answer."""
    original = first(post(), **options)
    replay(post(), original)
    return original


STATUS = {
    "key-missing": (400, False), "key-invalid": (400, False), "scope-missing": (400, False),
    "in-flight": (409, True), "outcome-unknown": (409, False), "key-reused": (422, False),
    "response-incomplete": (502, True), "store-unavailable": (503, True), "too-many-waiters": (429, True),
    "in-doubt": (409, True), "response-lost": (502, True), "backend-unavailable": (502, True),
    "authorization-unavailable": (503, True), "out-of-memory": (503, True),
    "quota-exceeded": (429, True), "too-many-unknown": (503, True),
}


def problem(response, kind, retry_after=None, status=None):
    """An answer of the gateway's own, RFC 9457. `retry_after`: (least, most) seconds; by default: there where it is retryable."""
    usual, retryable = STATUS[kind]
    status = status or usual
    assert response.status == status, response
    assert response.header("Content-Type") == "application/problem+json", response
    content = response.json()
    assert content["type"] == f"urn:once:problem:{kind}", content
    assert content["status"] == status, content
    assert content["retryable"] is retryable, content
    assert content["title"] and isinstance(content["title"], str), content
    assert content["detail"] and isinstance(content["detail"], str), content
    assert content["error"]["code"] == kind and content["error"]["message"] == content["detail"], content
    assert "Idempotent-Replayed" not in response.headers, response
    assert "Idempotency-Expires" not in response.headers, response
    assert response.header("Cache-Control") == "no-store", response
    plain(response)
    if retry_after or (retryable and status not in (502, 504)):
        least, most = retry_after or (1, 60)
        assert least <= int(response.header("Retry-After", "-1")) <= most, response
    return response
