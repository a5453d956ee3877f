# SPDX-License-Identifier: MIT
# bash completion for the programs of cowraid. What there is, the programs say themselves: every word comes
# from --help.

# _cowraid_help PROGRAM [WORD...]: one line per command, option and paragraph.
_cowraid_help() {
    LC_ALL=C ARGP_HELP_FMT=rmargin=5000 "$@" --help 2>/dev/null </dev/null
}

# _cowraid_words PROGRAM [GROUP]: groups and single commands, or the commands of a group.
_cowraid_words() {
    _cowraid_help "$1" | sed -nE 's/^  ([a-z][a-z0-9 -]*[a-z0-9])  .*/\1/p' |
        awk -v group="$2" 'group == "" { print $1 } group == $1 && NF > 1 { print $2 }' | sort -u
}

# _cowraid_option_lines PROGRAM [WORD...]: of a group alone those of its "start".
_cowraid_option_lines() {
    _cowraid_help "$@" | grep -E '^ {2,6}-' || _cowraid_help "$@" start | grep -E '^ {2,6}-'
}

_cowraid_options() {
    _cowraid_option_lines "$@" | sed -E 's/^ {2,6}//; s/  .*//' |
        grep -oE -- '(^|, )-(-[a-z][a-z-]*(\[?=)?|[A-Za-z])' | sed -E 's/^, //; s/\[=/=/'
}

# _cowraid_values OPTION PROGRAM [WORD...]: those that the text of the option lists. Plans of a scrub and trees have
# such a list; elsewhere --plan takes no value.
_cowraid_values() {
    _cowraid_option_lines "${@:2}" | grep -E -- "^ +(--?[a-z]+, )?$1[,=]" | sed -nE 's/^[^:]*: ([^;]*).*/\1/p' |
        sed -E 's/\([^)]*\)//g; s/ or / /g' | grep -oE '[^ ,]+'
}

_cowraid_profiles() {
    local mkfs beside=
    # The folder of a program that was found in PATH is not known, and the working directory may be anybody's.
    [[ $1 != /* ]] || beside=${1%/*}/mkfs.cowraid
    mkfs=$(type -P ${beside:+"$beside"} mkfs.cowraid {,/usr/local,/usr}/sbin/mkfs.cowraid | head -n 1)
    _cowraid_help "$mkfs" | sed -nE 's/.*profile of data: //p' | tr -d , | tr ' ' '\n'
}

_cowraid_mount_options() {
    _cowraid_help "$1" | sed -nE '/^Mount options:/,$s/^  ([a-z_-]+=?).*/\1/p'
}

# _cowraid_operands PROGRAM [WORD...]: fixed words of its usage line, and the mount points of volumes where it
# asks for a volume. Names of files are completed without that.
_cowraid_operands() {
    local usage
    usage=$(_cowraid_help "$@" | sed -nE 's/^(Usage:|  or:) .*\[OPTION\.\.\.\]//p')
    grep -oE '\b[a-z]{3,}\b' <<<"${usage//cowraid:/}"
    [[ ! $usage =~ VOLUME|MOUNTPOINT|DIRECTORY ]] ||
        findmnt -lno TARGET -t fuse.cowraid,fuseblk.cowraid 2>/dev/null | sort -u
}

# _cowraid_reply BEGINNING: those of the lines read that begin so. Unlike compgen -W it expands nothing.
_cowraid_reply() {
    local line
    while IFS= read -r line; do
        [[ -z $line || $line != "$1"* ]] || COMPREPLY+=("$line")
    done
    [[ ${COMPREPLY[0]} != *= ]] || compopt -o nospace 2>/dev/null
}

# The group and command typed so far, into `words`. A second word that is no command is an operand.
_cowraid_typed() {
    local index
    for ((index = 1; index < COMP_CWORD && ${#words[@]} < 2; ++index)); do
        [[ ${COMP_WORDS[index]} == -* ]] || words+=("${COMP_WORDS[index]}")
    done
    [[ ${#words[@]} -lt 2 ]] || _cowraid_words "$1" "${words[0]}" | grep -qxF -- "${words[1]}" ||
        words=("${words[0]}")
}

_cowraid() {
    local program=$1 current=${COMP_WORDS[COMP_CWORD]} previous=${COMP_WORDS[COMP_CWORD - 1]} words=()
    COMPREPLY=()
    # "=" is a word of its own.
    if [[ $current == = ]]; then
        current=
    elif [[ $previous == = ]]; then
        previous=${COMP_WORDS[COMP_CWORD - 2]}
    fi
    [[ ${program##*/} != cowraid ]] || _cowraid_typed "$program"
    case ${program##*/}:$previous in
    mount.cowraid:-o)
        # Only the last of several that commas separate.
        local before=
        [[ $current != *,* ]] || before=${current%,*},
        _cowraid_reply "$current" < <(_cowraid_mount_options "$program" | sed "s|^|$before|")
        compopt -o nospace 2>/dev/null
        return
        ;;
    *:-d | *:-m | *:--data | *:--metadata | *:--convert)
        _cowraid_reply "$current" < <(_cowraid_profiles "$program")
        return
        ;;
    cowraid:--plan | cowraid:--tree | cowraid:-t)
        _cowraid_reply "$current" < <(_cowraid_values "$previous" "$program" "${words[@]}")
        [[ ${#COMPREPLY[@]} -eq 0 ]] || return
        ;;
    esac
    if [[ $current == -* ]]; then
        _cowraid_reply "$current" < <(_cowraid_options "$program" "${words[@]}")
        return
    fi
    [[ ${program##*/} != cowraid || ${#words[@]} -gt 1 ]] ||
        _cowraid_reply "$current" < <(_cowraid_words "$program" "${words[0]}")
    [[ ${program##*/} == cowraid && ${#words[@]} -eq 0 ]] ||
        _cowraid_reply "$current" < <(_cowraid_operands "$program" "${words[@]}")
    [[ ${COMPREPLY[0]} != /* ]] || compopt -o filenames 2>/dev/null
}

complete -o default -F _cowraid cowraid fsck.cowraid mkfs.cowraid mount.cowraid umount.fuse.cowraid
