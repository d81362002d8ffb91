"""Spring and JPA: errors that come late, a transaction that a joined method has spoilt, and isolation."""
import pytest

from stacks import APPS, Transactional


@pytest.fixture(scope="module")
def stack(database):
    made = Transactional(APPS["spring-jpa"], "direct", database).start()
    yield made
    made.close()


def check_recorded(stack, path, body, status, text):
    """Undone, and answered for good."""
    for replayed in (None, "true"):
        answer = stack.post(body, path=path)
        assert answer.status == status and text in answer.body, (answer.status, answer.body)
        assert answer.headers.get("Idempotent-Replayed") == replayed
    assert stack.database.payments(stack.order) == 0 and stack.state() == "completed"


def test_errors_of_the_flush_are_the_handlers(stack):
    check_recorded(stack.fresh(), "/late", stack.body(), 422, b"PostgreSQL refuses it")


def test_transaction_that_is_marked_for_rollback(stack):
    """It cannot be committed: a refusal is recorded without it, a success would be a lie."""
    check_recorded(stack.fresh(), "/caught", stack.body(then="409"), 409, b"caught")
    body = stack.fresh().body(then="201")
    for _ in range(2):
        assert stack.post(body, path="/caught").status == 500
    assert stack.database.payments(stack.order) == 0 and stack.state() is None


def test_isolation_of_the_handler(stack):
    answer = stack.fresh().post(path="/isolated")
    assert answer.json() == {"isolation": "serializable"}
