# shellcheck shell=bash
# SPDX-License-Identifier: GPL-2.0-only OR MIT
#
# Sourced by the tests of the commands: TAP, and checks on one command line.
#
#	. "$(dirname "$0")/lib.sh"
#	list_shows_a_pool() { want 0 mpool list ./p; has out '^p '; }
#	run list_shows_a_pool
#	finish
#
# Each test runs in its own empty folder, in a subshell under set -e: the first
# check that fails ends it. "want CODE COMMAND" leaves what was printed in the
# files out and err of $S.

set -u
CLI=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
TOP=$(cd "$CLI/../.." && pwd)
BIN=${BIN:-$TOP/build/bin}
O=${O:-$(dirname "$BIN")}
own_tmp=
[ -n "${TMPDIR-}" ] || own_tmp=$(mktemp -d)
T=${TMPDIR:-$own_tmp}
S=$T/.state
mkdir -p "$S"
# control sockets: their path is short, and no other user's sockets are met
XDG_RUNTIME_DIR=$(mktemp -d /tmp/kvcli.XXXXXX)
export XDG_RUNTIME_DIR
trap 'rm -rf "$XDG_RUNTIME_DIR"; [ -n "$own_tmp" ] && rm -rf "$own_tmp"' EXIT
PATH=$BIN:$PATH:/usr/sbin:/sbin
export PATH PYTHONDONTWRITEBYTECODE=1
unset MPOOL_IO MPOOL_DEV NO_COLOR
t_count=0
t_failed=0

run() {
	local rc d=$T/$1
	t_count=$((t_count + 1))
	rm -rf "${S:?}"/*
	mkdir -p "$d"
	(
		cd "$d" || exit 1
		set -e
		"$1"
	) >"$S/log" 2>&1
	rc=$?
	chmod -R u+rwx "$d"
	rm -rf "$d"
	if [ $rc = 0 ]; then
		echo "ok $t_count - $1"
	elif [ $rc = 77 ] && [ -s "$S/skip" ]; then
		echo "ok $t_count - $1 # SKIP $(cat "$S/skip")"
	else
		t_failed=1
		sed 's/^/# /' "$S/log"
		echo "not ok $t_count - $1"
	fi
}

finish() {
	echo "1..$t_count"
	exit $t_failed
}

# skip REASON: ends the test
skip() {
	echo "$1" >"$S/skip"
	exit 77
}

fail() {
	echo "failed: $*"
	exit 1
}

# want CODE COMMAND...: standard input is empty, hence no terminal
want() {
	local code=$1 rc=0
	shift
	"$@" >"$S/out" 2>"$S/err" </dev/null || rc=$?
	[ "$rc" = "$code" ] && return 0
	echo "failed: $* exited $rc, wanted $code"
	sed 's/^/  out: /' "$S/out" | head -n 20
	sed 's/^/  err: /' "$S/err" | head -n 20
	exit 1
}

# has out|err REGEX, hasnt out|err REGEX
has() {
	grep -qE -- "$2" "$S/$1" && return 0
	echo "failed: no '$2' in $1:"
	sed 's/^/  /' "$S/$1" | head -n 20
	exit 1
}
hasnt() {
	grep -qE -- "$2" "$S/$1" || return 0
	echo "failed: '$2' in $1:"
	sed 's/^/  /' "$S/$1" | head -n 20
	exit 1
}

# one_line_error: stderr is exactly one message, and it begins with the tool
one_line_error() {
	[ "$(wc -l <"$S/err")" = 1 ] || { cat "$S/err"; fail "not exactly one line on stderr"; }
	has err '^[a-z]+: '
}

# schema NAME [out|err] [--lines]: what was printed obeys utils/schema; NAME is TOOL_VERB, or of
# what both commands print
schema() {
	local name=$1 file=${2:-out} tool=common
	case $name in kvdb_* | mpool_*) tool=${name%%_*} ;; esac
	shift
	[ $# -gt 0 ] && shift
	python3 "$CLI/schema.py" "$tool" "${name#"$tool"_}" "$@" <"$S/$file" ||
		fail "$file does not obey schema $name"
}

# field EXPRESSION: evaluates python on the document d of out and prints it
field() {
	python3 -c 'import json, sys
d = json.load(open(sys.argv[1]))
print(eval(sys.argv[2]))' "$S/out" "$1"
}

# same LABEL A B
same() {
	[ "$2" = "$3" ] || fail "$1: '$2', wanted '$3'"
}

# sums PATH...: names, modes, sizes and contents of everything below
sums() {
	local p
	for p; do
		[ -e "$p" ] || echo "absent $p"
		find "$p" -printf '%y %m %s %p\n' 2>/dev/null | LC_ALL=C sort
		find "$p" -type f -print0 2>/dev/null | LC_ALL=C sort -z | xargs -0r b2sum
	done
}

# unchanged BEFORE PATH...: sums are as they were
unchanged() {
	local before=$1 now
	shift
	now=$(sums "$@")
	[ "$now" = "$before" ] || {
		diff <(echo "$before") <(echo "$now")
		fail "something was written"
	}
}

# without_override COMMAND...: as an ordinary user would fare: root's right to
# read and write everything is taken away, so that modes of files count
without_override() {
	if [ "$(id -u)" = 0 ]; then
		local caps=-dac_override,-dac_read_search
		setpriv --bounding-set=$caps --inh-caps=$caps -- "$@"
	else
		"$@"
	fi
}
can_drop_override() {
	mkdir -p "$S/probe"
	chmod 000 "$S/probe"
	if without_override ls "$S/probe" >/dev/null 2>&1; then
		chmod 700 "$S/probe"
		return 1
	fi
	chmod 700 "$S/probe"
}

# syncs_of FILE: from here to synced() each folder or file that fsync() is called for is added to
# FILE; a signal ends the first INTERRUPTED calls of each, as on FUSE
syncs_of() {
	cat >syncs.c <<-'END'
	#include <errno.h>
	#include <limits.h>
	#include <stdio.h>
	#include <stdlib.h>
	#include <sys/syscall.h>
	#include <unistd.h>
	int fsync(int fd)
	{
		static int last = -1, calls;
		char link[64], path[PATH_MAX];
		FILE *f = fopen(getenv("SYNCS"), "a");
		ssize_t n;

		snprintf(link, sizeof(link), "/proc/self/fd/%d", fd);
		n = readlink(link, path, sizeof(path));
		fprintf(f, "%.*s\n", (int)(n > 0 ? n : 0), path);
		fclose(f);
		calls = last == fd ? calls + 1 : 0;
		last = fd;
		if (getenv("INTERRUPTED") && calls < atoi(getenv("INTERRUPTED"))) {
			errno = EINTR;
			return -1;
		}
		return (int)syscall(SYS_fsync, fd);
	}
	END
	${CC:-cc} -shared -fPIC -o syncs.so syncs.c 2>/dev/null || skip "no compiler"
	export SYNCS=$1 LD_PRELOAD=$PWD/syncs.so
	export ASAN_OPTIONS=${ASAN_OPTIONS-}:verify_asan_link_order=0
}

# synced PATH...: below this folder; each was made durable
synced() {
	local part
	unset LD_PRELOAD
	for part; do
		grep -qx "$PWD/$part" "$SYNCS" || fail "$part was not synced"
	done
}
