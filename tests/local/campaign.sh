#!/bin/sh
# Crashes and kills for a while: what `make soak` runs of the local store.
#   campaign.sh BUILD SECONDS      for so long each; programs are looked for in BUILD
set -eu

build=$1
ONCE_SOAK_SECONDS=$2
export ONCE_SOAK_SECONDS

for name in local_crash local_processes; do
    program=$(find "$build" -name "$name" -type f -perm -u+x | head -n 1)
    [ -n "$program" ] || {
        echo "campaign: there is no $name in $build; build the tests first" >&2
        exit 1
    }
    "$program"
done
