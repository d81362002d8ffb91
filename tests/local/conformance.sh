#!/bin/sh
# The conformance suite on a local store of its own.
#   conformance.sh ONCE QUERY [OPTION...]
set -eu

once=$1
query=$2
shift 2
parent=/tmp
[ -w /dev/shm ] && parent=/dev/shm
place=$(mktemp -d "$parent/once-test-XXXXXX")
trap 'rm -rf "$place"' EXIT

"$once" conformance "$@" --exclusive "local:$place/store$query"
