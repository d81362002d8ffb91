#!/usr/bin/env bash
#
# The postgres store under load while processes and servers are killed, for a long time: every scenario of test_crash.py in turn.
#   campaign.sh BUILD SECONDS
set -eu

build=$(realpath "$1")
seconds=$2
here=$(dirname "$(realpath "$0")")
for scenario in workers backends server promote; do
    echo "$scenario, $((seconds / 4 + 8)) s"
    "$here/with-server" "$build/once" python3 "$here/test_crash.py" "$build/tests/postgres/postgres_load" \
        "$build/tests/postgres/libpostgres_skew.so" "$scenario" $((seconds / 4 + 8))
done
