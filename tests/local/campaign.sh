#!/bin/sh
# What `make soak` runs of the local store: crashes from fresh seeds, killed processes, and the campaign on filesystems whose power
# fails (campaign.py), which takes half of the time. An hour of it: campaign.py --seconds 3600.
#   campaign.sh BUILD SECONDS      programs are looked for in BUILD
set -eu

build=$1
here=$(dirname "$0")
ONCE_SOAK_SECONDS=$(($2 / 4 + 1))
export ONCE_SOAK_SECONDS

find_program() {
    find "$build" -name "$1" -type f -perm -u+x | grep . | head -n 1 || {
        echo "campaign: there is no $1 in $build; build the tests first" >&2
        exit 1
    }
}

for name in local_crash local_processes; do
    "$(find_program "$name")"
done
ONCE_DRIVER=$(find_program local_driver)
export ONCE_DRIVER
"$here/campaign.py" --seconds $(($2 / 2 + 1))
