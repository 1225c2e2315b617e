# SPDX-License-Identifier: Apache-2.0
# Completion of tracer for fish. Commands and options come from tracer itself.

function __tracer_command
    set -l words (commandline -opc)
    if set -q words[2]; and contains -- $words[2] (tracer --print-commands 2>/dev/null | cut -f1)
        echo $words[2]
    else
        echo trace
    end
end

# What the word before asks for: the name of its argument.
function __tracer_argument
    set -l words (commandline -opc)
    set -q words[2]; or return
    tracer (__tracer_command) --print-options 2>/dev/null |
        awk -F '\t' -v word="$words[-1]" '$1 == word || ($2 != "" && $2 == word) { print $3 }'
end

function __tracer_complete
    set -l words (commandline -opc)
    set -l word (commandline -ct)
    switch (__tracer_argument)
        case 'PID*'
            tracer list 2>/dev/null | awk 'NR > 1 { print $1 "\t" $2 }'
        case ''
            if string match -q -- '-*' $word
                tracer (__tracer_command) --print-options 2>/dev/null | awk -F '\t' '{ print $1 "\t" $4 }'
            else if test (count $words) -eq 1
                tracer --print-commands 2>/dev/null
            else
                __fish_complete_path $word
            end
        case '*'
            __fish_complete_path $word
    end
end

complete -c tracer -f -a '(__tracer_complete)'
