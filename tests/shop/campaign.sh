#!/bin/sh
#
# The shop while its parts are killed, half of the time with each broker: campaign.sh BUILD SECONDS. For scripts/soak.
set -eu
ONCE_BUILD=$(realpath "$1")
export ONCE_BUILD
here=$(realpath "$(dirname "$0")")
for broker in rabbitmq kafka; do
    "$here/../postgres/with-server" "$ONCE_BUILD/once" /usr/bin/python3 -B "$here/campaign.py" --broker "$broker" \
        --seconds $(($2 / 2))
done
