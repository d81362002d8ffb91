"""What the clients of a gateway are told while the server is gone."""
import os
import shlex
import subprocess

CTL = shlex.split(os.environ["ONCE_PG_CTL"])


def test_gone_is_503_and_heals(gateway):
    gw = gateway("once_store_timeout 500ms;")
    assert gw.post("before").status == 201
    subprocess.run(CTL + ["-m", "immediate", "stop"], check=True, stdout=subprocess.DEVNULL)
    try:
        assert gw.post("meanwhile").status == 503
        assert gw.upstream.count("meanwhile") == 0
    finally:
        subprocess.run(CTL + ["start"], check=True, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL)
    again = gw.post("before")
    assert again.status == 201 and again.headers.get("Idempotent-Replayed") == "true"
    gw.nginx.expect("the store did not answer in time")
