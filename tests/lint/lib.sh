# shellcheck shell=bash
# SPDX-License-Identifier: GPL-2.0-only OR MIT
#
# What the checkers in bash share: a folder of their own in $TMPDIR, and verdicts.

n=0 failed=0
own=
[ -n "${TMPDIR-}" ] || own=$(mktemp -d)
export TMPDIR=${TMPDIR:-$own}
trap '[ -n "$own" ] && rm -rf "$own"' EXIT

# verdict NAME: it holds when nothing was written to $TMPDIR/out
verdict() {
	n=$((n + 1))
	if [ -s "$TMPDIR/out" ]; then
		sed 's/^/# /' "$TMPDIR/out" | head -n 60
		echo "not ok $n - $1"
		failed=1
	else
		echo "ok $n - $1"
	fi
}

# skip NAME WHY
skip() {
	n=$((n + 1))
	echo "ok $n - $1 # SKIP $2"
}
