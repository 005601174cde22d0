#!/bin/bash
# SPDX-License-Identifier: GPL-2.0-only OR MIT
#
# What make install gives to udev and systemd, installed into a folder of its own and read by
# systemd's own checkers. Where they are absent their tests are skipped.

cd "$(dirname "$0")/../.." || exit 1
. tests/lint/lib.sh
T=$TMPDIR

# ours FILE...: what systemd-analyze says about them; it reads units that they name, too
analyze() { systemd-analyze verify --man=no "$@" 2>&1 | grep -v '^$'; }

p=$T/prefix u=$T/prefix/etc/systemd/system
env -u MAKEFLAGS -u MAKELEVEL -u MFLAGS make --no-print-directory B="${B:-build}" PREFIX="$p" \
	UDEVDIR="$p/etc/udev/rules.d" install >"$T/make" 2>&1 || cp "$T/make" "$T/out"
{
	for f in udev/*; do
		case $f in
		*.rules) t=$p/etc/udev/rules.d/${f##*/} ;;
		*.sysusers) t=$p/etc/sysusers.d/$(basename "$f" .sysusers).conf ;;
		*) t=$u/${f##*/} ;;
		esac
		[ -s "$t" ] || echo "$f is not installed at ${t#"$T/"}"
	done
	grep -rn '@[A-Z]*@' "$p/etc"
	grep -rhoE "$p/bin/[a-z]+" "$p/etc" | sort -u | while read -r c; do
		[ -x "$c" ] || echo "$c is named and was not installed"
	done
	# each command line is one that mpool understands
	grep -rhoE 'bin/mpool .*' udev | sed 's/"$//' | sort -u | while read -r _ args; do
		set -- $args
		[ "$1" = -q ] && shift
		"$p/bin/mpool" help "$1" >/dev/null 2>&1 || echo "no such verb: mpool $args"
		for a; do
			case $a in
			--*) "$p/bin/mpool" help "$1" | grep -q -e "$a" || echo "unknown: $args" ;;
			esac
		done
	done
} >>"$T/out" 2>&1
verdict rules_and_units_are_installed

# a oneshot service without one may start for ever
grep -LE '^Timeout(Start)?Sec=[0-9]+(s|min|h|d|w)$' udev/*.service >"$T/out"
verdict services_have_a_time_limit

# an activation before it would change what the image takes for unchanged
grep -LE '^After=.*\<local-fs-pre\.target\>' udev/mpool-activate@.service >"$T/out"
verdict pools_are_activated_behind_a_resume

if command -v systemd-analyze >/dev/null; then
	# the commands of the build folder take the place of installed libraries' users
	analyze "$u"/mpool.service "$u"/mpool-activate@.service "$u"/mpool-scrub@.service \
		"$u"/mpool-scrub@.timer >"$T/out"
	verdict units_pass_systemd_analyze
	sed 's/^Type=.*/Typ=oneshot/' "$u/mpool.service" >"$u/planted.service"
	analyze "$u/planted.service" | grep -q planted.service ||
		echo "Typ= was not noticed" >"$T/out"
	verdict systemd_analyze_sees_a_planted_mistake
	# of 100: what is left are root's rights over devices
	for f in udev/*.service; do
		systemd-analyze security --offline=yes --threshold=45 "$u/${f##*/}" \
			>"$T/say" 2>&1 || sed "s|^|${f##*/}: |" "$T/say" | tail -n 1
	done >"$T/out"
	verdict services_run_in_a_sandbox
else
	skip units_pass_systemd_analyze "no systemd-analyze"
	skip systemd_analyze_sees_a_planted_mistake "no systemd-analyze"
	skip services_run_in_a_sandbox "no systemd-analyze"
fi

if command -v systemd-sysusers >/dev/null; then
	systemd-sysusers --dry-run "$p/etc/sysusers.d/mpool.conf" >"$T/say" 2>&1 ||
		cp "$T/say" "$T/out"
	verdict the_group_can_be_made
else
	skip the_group_can_be_made "no systemd-sysusers"
fi

make --no-print-directory B="${B:-build}" PREFIX="$p" UDEVDIR="$p/etc/udev/rules.d" uninstall \
	>"$T/make" 2>&1
find "$p/etc" -type f ! -name planted.service >"$T/out"
verdict uninstall_leaves_nothing

echo "1..$n"
exit $failed
