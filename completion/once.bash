# bash completion for once(1)

# The words that can follow `once` and the words given.
_once_commands() {
    case $1 in
    '')
        echo gate consume dlq relay outbox demo keys stats reap fsck backup pg key secret conformance bench help version
        echo --help --version
        ;;
    outbox) echo list retry drop ;;
    dlq) echo list replay ;;
    keys) echo list show settle release purge export ;;
    key) echo new derive hash compose check ;;
    secret) echo rotate webhook ;;
    pg) echo install upgrade status ;;
    bench) echo store ;;
    esac
}

_once_options() {
    local filter='--state --stuck --older --younger --scope --scope-file --scope-hash --limit'
    local target='--scope --scope-file --key'
    case $1 in
    gate)
        echo --upstream --upstream-ca --auth --listen --store --route --scope --tls-cert --tls-key --status --set --workers --user
        echo --socket-mode --nginx --module --print-config
        ;;
    consume)
        echo --to --store --subscriber --id --fingerprint --order --concurrency --window --timeout --tries --backoff --backoff-max
        echo --dead-letter --ttl --lease --recover --release --header --content-type --cacert --metrics --log --drain
        ;;
    relay)
        echo --source --secret-file --unsigned --cacert --tries --give-up --timeout --requests --lease --poll --window --drain
        echo --metrics --log --progress --until-empty
        ;;
    'outbox list') echo --waiting --limit --json ;;
    'outbox retry') echo --all ;;
    'outbox drop') echo --all --yes ;;
    'dlq list') echo --limit --all --json ;;
    'dlq replay') echo --to --any --id --all ;;
    'keys list') echo "$filter --wide --json" ;;
    'keys show') echo "$target --headers --body --force --json" ;;
    'keys settle') echo "$target --claim --completed --status --header --body-file --failed --note --force --yes" ;;
    'keys release') echo "$target --claim --note --force --yes" ;;
    'keys purge') echo "--key --claim $filter --all --dry-run --force --yes" ;;
    'keys export') echo "$filter --headers --bodies" ;;
    stats) echo --max-stuck --json ;;
    reap) echo --limit ;;
    fsck) echo --repair --json ;;
    'pg install') echo --cron --no-secrets --print --sql ;;
    'pg upgrade') echo --cron --sql ;;
    'pg status') echo --json ;;
    'key new') echo --v7 --count ;;
    'key derive') echo --parent --step ;;
    'key hash') echo --principal --action --payload-file --bucket --at ;;
    'key check') echo --strict ;;
    'secret rotate') echo --keep ;;
    conformance) echo --filter --threads --processes --seed --exclusive --stop --list ;;
    'bench store') echo --pairs --inflight --value-size --seconds --json ;;
    esac
    echo --help
}

# Options that take a value: after them no option is offered.
_once_takes_value() {
    case $1 in
    --older | --younger | --scope | --scope-hash | --limit | --key | --claim | --status | --header | --note | --max-stuck | \
        --count | --parent | --step | --principal | --action | --bucket | --at | --keep | --filter | --threads | --processes | \
        --seed | --pairs | --inflight | --value-size | --seconds | --upstream | --auth | --listen | --store | --route | \
        --set | --workers | --user | --socket-mode | \
        --to | --subscriber | --id | --fingerprint | --order | --concurrency | --window | \
        --timeout | --tries | --backoff | --backoff-max | --dead-letter | --ttl | --lease | --recover | --release | \
        --content-type | --metrics | --log | --drain | \
        --source | --requests | --poll | --give-up) return 0 ;;
    esac
    return 1
}

_once() {
    local current=${COMP_WORDS[COMP_CWORD]} previous=${COMP_WORDS[COMP_CWORD - 1]}
    local first=${COMP_WORDS[1]} second=${COMP_WORDS[2]-} words=
    COMPREPLY=()
    if [ "$COMP_CWORD" = 1 ]; then
        words=$(_once_commands '')
    elif [ "$first" = help ]; then
        if [ "$COMP_CWORD" = 2 ]; then
            words=$(_once_commands '')
        else
            words=$(_once_commands "$second")
        fi
    elif [ "$COMP_CWORD" = 2 ] && [ -n "$(_once_commands "$first")" ]; then
        words="$(_once_commands "$first") --help"
    elif [[ $previous == --*-file || $previous =~ ^--(tls-.*|upstream-ca|nginx|module|cacert)$ ||
        ($first == backup && $current != -*) ]]; then
        mapfile -t COMPREPLY < <(compgen -f -- "$current")
        return
    elif [ "$previous" = --state ]; then
        words='pending completed failed unknown'
    elif ! _once_takes_value "$previous"; then
        [ -n "$(_once_commands "$first")" ] && first="$first $second"
        words=$(_once_options "$first")
    fi
    mapfile -t COMPREPLY < <(compgen -W "$words" -- "$current")
}

complete -F _once once
