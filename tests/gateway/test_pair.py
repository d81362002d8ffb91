"""Two gateways on one store: what one ran, the other replays. Run with each store that gateways can share."""
from harness.wait import all_at_once


def test_what_one_ran_the_other_replays(pair):
    one, two = pair
    first = one.post("k")
    again = two.post("k")
    assert first.status == again.status == 201 and first.body == again.body
    assert again.headers.get("Idempotent-Replayed") == "true"
    assert one.upstream.count("k") == 1
    assert two.post("k", body=b"other").status == 422


def test_a_burst_over_both_runs_once(pair):
    one, two = pair
    for number in range(5):
        key = f"burst-{number}"
        answers = all_at_once([lambda gw=gw: gw.post(key) for gw in (one, two) * 8])
        assert {answer.status for answer in answers} == {201}
        assert len({answer.body for answer in answers}) == 1
        assert one.upstream.count(key) == 1
