# Completion of umfctl for bash. umfctl itself lists its commands and options.
_umfctl() {
    local word=${COMP_WORDS[COMP_CWORD]} command=${COMP_WORDS[1]-} i
    if [ "$COMP_CWORD" -eq 1 ]; then
        mapfile -t COMPREPLY < <(compgen -W "$(umfctl --list 2>/dev/null)" -- "$word")
        return
    fi
    for ((i = 2; i < COMP_CWORD; i++)); do
        if [ "${COMP_WORDS[i]}" = -- ]; then # a program and its arguments
            if [ $((i + 1)) -eq "$COMP_CWORD" ]; then
                mapfile -t COMPREPLY < <(compgen -c -- "$word")
            else
                mapfile -t COMPREPLY < <(compgen -f -- "$word")
            fi
            return
        fi
    done
    case $command:${COMP_WORDS[COMP_CWORD - 1]} in
    help:help) mapfile -t COMPREPLY < <(compgen -W "$(umfctl --list 2>/dev/null)" -- "$word") ;;
    *:--size | *:--seconds | *:--interval | *:-n | *:--devices) COMPREPLY=() ;;
    *:-o | *:--html | *:--chrome | *:--pytorch | *:--collapsed | *:--speedscope | *:--pprof | *:--key-file)
        mapfile -t COMPREPLY < <(compgen -f -- "$word")
        ;;
    *:--dir) mapfile -t COMPREPLY < <(compgen -d -- "$word") ;;
    *)
        mapfile -t COMPREPLY < <(compgen -W "$(umfctl --list "$command" 2>/dev/null)" -- "$word")
        case $command in
        top | metrics | snapshot | record | leaks)
            mapfile -t -O ${#COMPREPLY[@]} COMPREPLY < <(compgen -W "$(ps -o pid= -u "$UID" 2>/dev/null)" -- "$word")
            ;;
        esac
        case $command in
        trace | leaks | diff) mapfile -t -O ${#COMPREPLY[@]} COMPREPLY < <(compgen -f -- "$word") ;;
        esac
        ;;
    esac
}
complete -o filenames -F _umfctl umfctl
