# Completion of umfctl for fish. umfctl itself lists its commands and options.
function __umfctl_words
    set -l words (commandline -opc)
    if test (count $words) -lt 2 -o "$words[2]" = help
        umfctl --list 2>/dev/null
    else
        umfctl --list $words[2] 2>/dev/null
    end
end
complete -c umfctl -f -a '(__umfctl_words)'
complete -c umfctl -n '__fish_seen_subcommand_from top metrics snapshot record leaks' -a '(__fish_complete_pids)'
complete -c umfctl -n '__fish_seen_subcommand_from trace leaks diff' -F
