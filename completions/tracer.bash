# SPDX-License-Identifier: Apache-2.0
# Completion of tracer for bash. Commands and options come from tracer itself.

# The option's argument, by its long or short name.
_tracer_argument() {
	"$1" "$2" --print-options 2>/dev/null |
		while IFS= read -r line; do
			local name="${line%%$'\t'*}" rest="${line#*$'\t'}"
			local short="${rest%%$'\t'*}" argument="${rest#*$'\t'}"
			if [[ $3 == "$name" || $3 == "$short" ]]; then
				printf '%s\n' "${argument%%$'\t'*}"
			fi
		done
}

_tracer_values() { # PROGRAM ARGUMENT WORD
	case $2 in
	PID*) compgen -W "$("$1" list 2>/dev/null | awk 'NR > 1 { print $1 }')" -- "$3" ;;
	CONTAINER) compgen -W "$("$1" list 2>/dev/null |
		awk 'NR == 1 { at = index($0, "CONTAINER"); next }
			{ split(substr($0, at), words, " "); if (words[1] != "-") print words[1] }')" \
		-- "$3" ;;
	FILE* | DUMP* | CORE* | PATH* | OUT*) compgen -f -- "$3" ;;
	esac
}

_tracer() {
	local program="${COMP_WORDS[0]}" word="${COMP_WORDS[COMP_CWORD]}" command=trace commands
	local before="${COMP_WORDS[COMP_CWORD - 1]}" argument=
	commands="$("$program" --print-commands 2>/dev/null | cut -f1)"
	COMPREPLY=()
	if ((COMP_CWORD > 1)) && grep -qxF -- "${COMP_WORDS[1]}" <<<"$commands"; then
		command="${COMP_WORDS[1]}"
	fi
	# --option=value comes in three words.
	if [[ $word == = ]]; then
		word=
	elif [[ $before == = ]]; then
		before="${COMP_WORDS[COMP_CWORD - 2]}"
	fi
	if ((COMP_CWORD > 1)) && [[ $before == -* ]]; then
		argument="$(_tracer_argument "$program" "$command" "$before")"
	fi
	if [[ -n $argument ]]; then
		mapfile -t COMPREPLY < <(_tracer_values "$program" "$argument" "$word")
	elif [[ $word == -* ]]; then
		mapfile -t COMPREPLY < <(
			compgen -W "$("$program" "$command" --print-options 2>/dev/null | cut -f1) --help" \
				-- "$word"
		)
	elif ((COMP_CWORD == 1)); then
		mapfile -t COMPREPLY < <(compgen -W "$commands" -- "$word")
	elif [[ $command == ctl ]] && ((COMP_CWORD == 2)); then
		mapfile -t COMPREPLY < <(_tracer_values "$program" PID "$word")
	else
		mapfile -t COMPREPLY < <(compgen -f -- "$word")
	fi
}

complete -o filenames -F _tracer tracer
