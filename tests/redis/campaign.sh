#!/usr/bin/env bash
#
# The redis store under load while things go wrong, one scenario after the other for its share of the time.
#
#   campaign.sh BUILD SECONDS
set -u

here=$(dirname "$0")
load=$1/tests/redis/redis_load
each=$(($2 / 6 - 8))
[ $each -lt 6 ] && each=6
failed=0

run() { # scenario, options of with-server
    local scenario=$1
    shift
    echo "$scenario $*"
    timeout $((each * 2 + 60)) "$here/with-server" "$@" "$here/test_faults.py" "$load" "$scenario" "$each" || {
        echo "FAILED: $scenario $*"
        failed=1
    }
}

run workers
run server --option "appendonly yes" --option "appendfsync always"
run trouble --option "enable-debug-command yes"
run failover --sentinel --failover --parameter wait=2
run failover --cluster --failover --parameter wait=1
run reshard --cluster
exit $failed
