#!/bin/bash
# SPDX-License-Identifier: GPL-2.0-only OR MIT
#
# Is each check needed that the module makes of what a user gives? In a module of its own each
# can be switched off (tests/refusals.py), and in a virtual machine the tests of its calls must
# notice: a test that fails, a machine that dies. Needs no root.
#
#   KVER=...   the kernel; the first that is here otherwise
#   ONLY='N...' these refusals
#   UPDATE=1   notes in tests/ablate.txt which program noticed

set -u
cd "$(dirname "$0")/../.." || exit 1
B=$(realpath -m "${B:-build}")
O=$(realpath -m "${O:-$B}")
export B O
kver=${KVER:-$(tests/kmod/kernels.sh boot | head -n 1)}

skip() {
	echo "1..0 # SKIP $1"
	exit 77
}
for c in qemu-system-x86_64 busybox; do
	command -v $c >/dev/null || skip "no $c"
done
[ -n "$kver" ] || skip "no kernel headers, 6.1 or newer"

dir=$(mktemp -d) || exit 1
trap 'rm -rf "$dir"' EXIT

# the module with a switch at each refusal
build() {
	local d=$B/kmod-off/$kver f
	mkdir -p "$d" && cp -pr kmod/. "$d" || return
	for f in kmod/*.c; do
		tests/ablate.py copy "$f" >"$dir/copy" || return
		[ "$f" != kmod/main.c ] ||
			printf 'int mp_off;\nmodule_param(mp_off, int, 0644);\n' >>"$dir/copy"
		cp "$dir/copy" "$d/${f#kmod/}"
	done
	env -u MAKEFLAGS -u MAKELEVEL -u MFLAGS -u B -u O make -j2 -C "$d" KVER="$kver" \
		KDIR="$(tests/kmod/kernels.sh dir "$kver")" >"$dir/make" 2>&1 &&
		cp "$d/mpool.ko" "$dir/guest/bin/mpool-off.ko" && return
	grep -E 'error|\*\*\*' "$dir/make" | sed 's/^/# /'
	return 1
}

# boot: those of $dir/todo, until one ends the machine; $dir/done has what was found
boot() {
	cp "$dir/todo" "$dir/guest/bin/refusals"
	VM_TIMEOUT=1200 TEST_LIMIT=1100 O=$dir/guest \
		tests/kmod/boot.sh "$kver" "$dir/vm" refusals_guest >"$dir/log" 2>&1
	rm -f "$dir/guest/bin/first"
	sed -n 's/^# end //p' "$dir/vm/console" >"$dir/new"
	# begun and not ended
	awk '$2 == "begin" { n = $3 } $2 == "end" { n = "" } END { if (n) print n, "dies", 0 }' \
		"$dir/vm/console" >>"$dir/new"
	cat "$dir/new" >>"$dir/done"
	grep -a 'fails with all on' "$dir/vm/console" >>"$dir/unfit"
	awk 'NR == FNR { had[$1]; next } !($1 in had)' "$dir/done" "$dir/todo" >"$dir/rest"
	mv "$dir/rest" "$dir/todo"
	[ -s "$dir/new" ]
}

mkdir -p "$dir"/guest/{bin,tests}
cp "$O/bin/mpool" "$dir/guest/bin"
for t in test_ioctl test_uring test_cross test_objfd test_lifecycle test_customs; do
	cp "$O/tests/$t" "$dir/guest/tests"
done
tests/ablate.py module >"$dir/all"
if [ -n "${ONLY-}" ]; then
	grep -E "^(${ONLY// /|}) " "$dir/all" >"$dir/some"
	mv "$dir/some" "$dir/all"
fi
cp "$dir/all" "$dir/todo"
: >"$dir/done"
: >"$dir/unfit"
if ! build; then
	echo "not ok 1 - the_module_with_switches_is_built"
	echo 1..1
	exit 1
fi
: >"$dir/guest/bin/first"
while [ -s "$dir/todo" ] && boot; do
	:
done
cat "$dir/unfit"
[ ! -s "$dir/todo" ] || tail -n 20 "$dir/log" "$dir/vm/console" | sed 's/^/# /'

awk 'NR == FNR { by[$1] = $2; ms[$1] = $3; next }
{
	good = $1 in by && by[$1] != "-"
	n += good
	printf "%s %d - %s_is_noticed%s\n", good ? "ok" : "not ok", FNR, $2,
	       good ? " # " by[$1] ", " ms[$1] " ms" : ""
}
END {
	if (unfit)
		print "not ok " FNR + 1 " - programs_pass_with_every_refusal_on"
	printf "1..%d\n# figure: refusals of the module | %d of %d noticed | 1\n",
	       FNR + unfit, n, FNR
	exit n != FNR || unfit
}' unfit="$([ ! -s "$dir/unfit" ] || echo 1)" "$dir/done" "$dir/all"
rc=$?
[ -z "${UPDATE-}" ] ||
	awk '$2 != "-" { print $1, $2 == "dies" ? "test_ioctl" : $2, $3 }' "$dir/done" |
	tests/ablate.py remember
exit $rc
