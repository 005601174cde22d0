#!/bin/bash
# SPDX-License-Identifier: GPL-2.0-only OR MIT
#
# Runs test programs, JOBS at a time, and sums up their TAP. By default it is two, and three of
# unit, conform and cli, whose programs wait for the disk and for each other half of the time.
#
#   B=build O=build tests/run.sh SUITE...      (make check, make check-unit, ...)
#
# Suites: unit conform crash stress soak model  programs of that folder, from $O/tests
#                                    (unit: and of tests/golden)
#         cli                        tests/cli/test_*, executables
#         lint                       tests/lint/*.sh and *.py
#         quick                      unit, shortened, and one or two of conform, cli and lint
#         ablate                     tests/ablate.py short, planted and refusals
#         guards planted refusals    tests/ablate.py full, planted (in pieces when it is resumed)
#                                    and refusals
#         asan tsan                  unit and conform again, from that build, shortened; with
#                                    TEST_LONG crash, model, stress and soak too, asan: and cli
#         threads                    of stress, what `make thread-tests' built with
#                                    ThreadSanitizer, shortened
#         fuzz                       tests/fuzz/fuzz_*, on their corpus
#         vm                         tests/kmod and tests/conform on the kernel module, in
#                                    virtual machines (VM_KERNELS, VM_TESTS: only these)
#         kmod                       the same in this machine's kernel, as root
#
#         uml                        tests/kmod on the kernel module under sanitizers, in User
#                                    Mode Linux: its tests, the ioctl fuzzer, failing memory
#         debug                      the same in QEMU: several processors, preemption
#
# A program finds: O (build folder of its variant), BIN (its commands), TMPDIR
# (its own empty folder, removed afterwards, on the build's file system or in SCRATCH;
# of suites that run again what others run on the disk, or do not need one, in memory),
# TEST_SHORT=1 when it should take a tenth of its time, TEST_LONG=1 when it may
# take ten times as long, SEED when the caller gave one, TEST_SEED. Standard input is
# empty. It prints TAP; exit 77 or a plan of 0 means skipped.
#
# With RESUME=1 what passed in $LOG already is not run again; then, of a long run,
# programs that take hours are run in pieces (PIECE=i/n), whose figures are added.
#
# One that dies, runs out of time, or ends before its plan counts as one failed
# test more. At the end comes a table: what the programs printed as
#
#   # figure: LINE | FIGURE | SEED
#
# and a row for each suite. The last line is: N passed, N failed, N skipped.

set -u
cd "$(dirname "$0")/.." || exit 1
B=$(realpath -m "${B:-build}")
O=$(realpath -m "${O:-$B}")
wanted=${JOBS-}
log=$(realpath -m "${LOG:-$O/check}")
[ -n "${RESUME-}" ] || rm -rf "$log"
scratch=$log
[ -z "${SCRATCH-}" ] || scratch=$(realpath -m "$SCRATCH/mpool-tests.$$")
mkdir -p "$log" "$scratch" || exit 1
# in memory, if there is plenty of it: half the time
memory=$scratch
plenty='{ kib = $NF } END { exit !(kib >= 8 * 1024 * 1024) }'
if [ -z "${SCRATCH-}" ] && df --output=avail -k /dev/shm 2>/dev/null | awk "$plenty" &&
	sed -n 's/^MemAvailable.* \([0-9]*\) kB/\1/p' /proc/meminfo | awk "$plenty"; then
	memory=$(mktemp -d /dev/shm/mpool-tests.XXXXXX) || exit 1
	chmod 711 "$memory" # some tests are another user for a while
fi
# control sockets: the path of a socket is short
sockets=$(mktemp -d /tmp/kvrun.XXXXXX) || exit 1
trap 'rm -rf "$sockets" ${SCRATCH:+"$scratch"}; [ "$memory" = "$scratch" ] || rm -rf "$memory"' EXIT
# A commit's run is repeatable, and each commit looks at other histories: seeds follow from
# what is in its tree. What chance finds in one tree is no reason to refuse another.
if [ -z "${TEST_SEED-}" ]; then
	tree=$(git rev-parse 'HEAD^{tree}' 2>/dev/null || date +%N%s)
	TEST_SEED=$((16#${tree:0:7} + 1))
fi
export TEST_SEED
factor=1
[ -n "${TEST_LONG-}" ] && factor=15

# below PID...: the processes below these
below() {
	local p c
	for p; do
		for c in $(cat "/proc/$p/task/"*/children 2>/dev/null); do
			echo "$c"
			below "$c"
		done
	done
}

stop_all() {
	trap - INT TERM
	# a shell that waits for its program passes no signal on; limit.py makes a session
	local pids
	pids=$(jobs -p)
	# shellcheck disable=SC2046,SC2086
	[ -n "$pids" ] && kill $pids $(below $pids) 2>/dev/null
	wait
	echo "interrupted"
	exit 130
}
trap stop_all INT TERM

# sum_up RC [WHY] < TAP: prints "passed failed skipped", then a word on what went wrong
sum_up() {
	awk -v rc="$1" -v found="${2-}" '
	/^ok / { if (toupper($0) ~ /# *SKIP/) s++; else p++ }
	/^not ok / { f++ }
	/^Bail out!/ { bail = 1 }
	/^1\.\.[0-9]+/ { split($1, a, "\\.\\."); plan = a[2]; has_plan = 1 }
	END {
		p += 0; f += 0; s += 0; why = ""
		if (found != "") {
			f++; why = found
		} else if (rc == 77 || (rc == 0 && has_plan && plan == 0)) {
			if (p + f + s == 0) s = 1
		} else if (rc == 124 || rc == 137) {
			f++; why = "out of time or killed"
		} else if (rc > 128) {
			f++; why = "died of signal " (rc - 128)
		} else if (bail) {
			f++; why = "bailed out"
		} else if (!has_plan || p + f + s != plan) {
			f++; why = "ended before its plan, exit " rc
		} else if (rc != 0 && f == 0) {
			f++; why = "exit " rc
		}
		print p, f, s, why
	}'
}

# has_passed SUITE.NAME: before, in the run that is resumed
has_passed() {
	[ -n "${RESUME-}" ] && awk '{ good = $1 + $3 && !$2 } END { exit !good }' "$log/$1.sum" \
		2>/dev/null
}

# one SUITE NAME SECONDS COMMAND...: runs it, reports it under the lock. The seconds are of
# processors, not of the clock (tests/limit.py): other programs may use the machine meanwhile
one() {
	local suite=$1 name=$2 limit=$3 out rc start end
	shift 3
	out=$log/$suite.$name
	case $suite in
	asan | tsan | threads | model | ablate) TMPDIR=$memory/$suite.$name.tmp ;;
	*) TMPDIR=$scratch/$suite.$name.tmp ;;
	esac
	export TMPDIR
	rm -rf "$TMPDIR"
	mkdir -p "$TMPDIR"
	XDG_RUNTIME_DIR=$(mktemp -d -p "$sockets")
	export XDG_RUNTIME_DIR
	start=$(date +%s%N)
	tests/limit.py $((limit * factor)) "$@" >"$out" 2>&1 </dev/null
	rc=$?
	end=$(date +%s%N)
	rm -rf "$TMPDIR" "$XDG_RUNTIME_DIR"
	report "$suite" "$name" $rc $(((end - start) / 100000000))
}

# report SUITE NAME RC TENTHS [WHY]: one line, under the lock, and what was printed if it failed
report() {
	local suite=$1 name=$2 rc=$3 tenths=$4 out=$log/$1.$2 p f s why
	read -r p f s why < <(sum_up "$rc" "${5-}" <"$out")
	echo "$p $f $s" >"$out.sum"
	exec 9>"$log/lock"
	flock 9
	printf '%-6s %-42s %5d passed %3d failed %3d skipped %4d.%01d s  %s\n' \
		"$([ "$f" = 0 ] && echo ok || echo FAIL)" "$suite/$name" "$p" "$f" "$s" \
		$((tenths / 10)) $((tenths % 10)) "$why"
	if [ "$f" != 0 ]; then
		sed 's/^/    | /' "$out" | tail -n 200
	elif [ "$s" != 0 ]; then
		grep -iE '# *skip' "$out" | sed 's/^/    skipped: /'
	fi
	exec 9>&-
}

start() {
	! has_passed "$1.$2" || return 0
	while [ "$(jobs -rp | wc -l)" -ge "$JOBS" ]; do
		wait -n
	done
	one "$@" &
}

# start_pieces SUITE NAME SECONDS COMMAND...: several, of what takes hours in a run that is resumed
start_pieces() {
	local n=1 i
	[ -z "${RESUME-}" ] || [ -z "${TEST_LONG-}" ] || [ -n "${TEST_SHORT-}" ] || case $1.$2 in
	model.model_kvdb) n=16 ;;
	guards.*) n=8 ;;
	model.model_history | crash.* | fuzz.* | planted.*) n=4 ;;
	esac
	if [ $n = 1 ]; then
		start "$@"
		return
	fi
	for ((i = 0; i < n; i++)); do
		PIECE=$i/$n start "$1" "$2+$i" "${@:3}"
	done
}

# programs SUITE FOLDER SECONDS BUILD
programs() {
	local suite=$1 folder=$2 limit=$3 build=$4 src name
	for src in tests/"$folder"/{,*/}{test,crash,stress,model}_*.c; do
		[ -e "$src" ] || continue
		name=$(basename "$src" .c)
		O=$build BIN=$build/bin start_pieces "$suite" "$name" "$limit" "$build/tests/$name"
	done
}

scripts() {
	local suite=$1 limit=$2 build=$3 f
	shift 3
	for f in "$@"; do
		[ -x "$f" ] || continue
		O=$build B=$B BIN=$build/bin start "$suite" "$(basename "$f")" "$limit" "$f"
	done
}

# what runs on the module: everything in tests/kmod that is named test_*, and the conformance
# suites again. On every kernel but the first only what is close to the kernel, except in
# long runs: object files, rings, commands, devices, loading and the selftest of it; tools, udev,
# the conformance suites and the database see the same interface on all
vm_tests() {
	# databases that fill their pool compute for minutes in an emulated machine
	local f far='test_conform_full'
	[ "${1-}" != other ] || far='test_(cli.*|udev|conform.*|backend|cross|embedded|loss)'
	[ -z "${TEST_LONG-}" ] || far=none
	for f in tests/kmod/test_*.c tests/kmod/test_*.sh ${TEST_LONG:+tests/kmod/bench_*.c}; do
		f=${f##*/}
		f=${f%.*}
		[ "$f" = 'test_*' ] || [[ $f =~ ^$far$ ]] || echo "$f"
	done
}

# vm_report SUITE PREFIX DIR: what split.awk left in DIR, like all other programs
vm_report() {
	local name rc secs why
	while read -r name rc secs why; do
		cp "$3/$name" "$log/$1.$2$name"
		secs=$(awk -v s="$secs" 'BEGIN { print int(s * 10) }')
		report "$1" "$2$name" "$rc" "$secs" "$why"
	done <"$3/results"
}

# passed DIR SUITE PREFIX: notes for a resumed run that no program of a machine failed
passed() {
	local sum
	for sum in "$log/$2.$3"*.sum; do
		[ "$(cut -d' ' -f2 "$sum")" = 0 ] || return
	done
	: >"$1/passed"
}

# vm KVER only|first|other: one machine. The first of several, which runs everything, has one
# processor but in long runs: two emulated ones that share one of this machine's wait for each
# other half the time
vm() {
	local kver=$1 dir=$log/vm-$1 cpus=2
	[ ! -e "$dir/passed" ] || return 0
	[ "$2" != first ] || [ -n "${TEST_LONG-}" ] || cpus=1
	rm -rf "$dir" "$log/vm.${kver%-*}"*
	# shellcheck disable=SC2046,SC2086
	set -- ${VM_TESTS:-$(vm_tests "$2")}
	B=$B O=$O VM_CPUS=${VM_CPUS:-$cpus} VM_TIMEOUT=${VM_TIMEOUT:-$((1800 * factor))} \
		tests/kmod/boot.sh "$kver" "$dir" "$@" \
		>"$dir.log" 2>&1
	[ ! -e "$dir/again" ] || echo "# vm ${kver%-*}, begun again: $(cat "$dir/again")"
	if [ ! -e "$dir/results" ]; then
		cp "$dir.log" "$log/vm.${kver%-*}"
		report vm "${kver%-*}" 1 0 "no machine"
		return
	fi
	vm_report vm "${kver%-*}." "$dir"
	passed "$dir" vm "${kver%-*}."
}

# here: this machine
here() {
	local dir=$log/here
	# shellcheck disable=SC2046
	set -- ${VM_TESTS:-$(vm_tests)}
	mkdir -p "$dir"
	MPK_KO=$B/kmod/$(uname -r)/mpool.ko tests/kmod/each.sh "$@" >"$dir/console" \
		2>"$dir.log" </dev/null
	awk -v out="$dir" -v list="$*" -f tests/kmod/split.awk "$dir/console" ||
		sed 's/^/    | /' "$dir.log"
	vm_report kmod '' "$dir"
}

# what runs under sanitizers: those tests that need nothing but disks in memory, and abuse
san_tests=${SAN_TESTS:-test_ioctl test_lifecycle test_uring test_objfd test_objerr test_spread
	test_kill fuzz_ioctl fail_nth}

# sanitized SUITE COMMAND...: COMMAND DIR NAME... runs them, reported like all others
sanitized() {
	local suite=$1 dir=$log/$1 rc name secs why
	shift
	[ ! -e "$dir/passed" ] || return 0
	# of an attempt that was resumed, too
	rm -rf "$dir" "$log/$suite".*
	# shellcheck disable=SC2086
	TEST_LIMIT=$((900 * factor)) "$@" "$dir" $san_tests >"$log/$suite.log" 2>&1
	rc=$?
	if [ ! -e "$dir/results" ]; then
		cp "$log/$suite.log" "$log/$suite.all"
		[ $rc = 77 ] && echo "1..0 # SKIP $(tail -n 1 "$log/$suite.log")" >"$log/$suite.all"
		report "$suite" all $rc 0
		return
	fi
	while read -r name rc secs why; do
		cp "$dir/$name" "$log/$suite.$name"
		report "$suite" "$name" "$rc" "$(awk -v s="$secs" 'BEGIN { print int(s * 10) }')" \
			"$why"
	done <"$dir/results"
	passed "$dir" "$suite" ''
}

# skipped SUITE WHY
skipped() {
	echo "1..0 # SKIP $2" >"$log/$1.all"
	report "$1" all 77 0
}

# python may not leave its caches in the source folders
export PYTHONDONTWRITEBYTECODE=1
export UBSAN_OPTIONS=print_stacktrace=1:halt_on_error=1
export ASAN_OPTIONS=detect_stack_use_after_return=1:abort_on_error=0
export TSAN_OPTIONS=halt_on_error=1:suppressions=$PWD/tests/tsan.supp

for suite; do
	JOBS=${wanted:-2}
	case $suite in
	unit | conform | cli | quick) JOBS=${wanted:-3} ;;
	esac
	case $suite in
	unit)
		programs unit unit 120 "$O"
		programs unit golden 120 "$O"
		;;
	conform) programs conform conform 120 "$O" ;;
	quick)
		export TEST_SHORT=1
		programs quick unit 120 "$O"
		programs quick golden 120 "$O"
		for p in kvdb_api kvdb_args mpool_pool mpool_object; do
			start quick test_$p 120 "$O/tests/test_$p"
		done
		scripts quick 60 "$O" tests/lint/{tree,layers,rooms,secure}.py \
			tests/cli/test_kvdb_data.sh
		unset TEST_SHORT
		;;
	# a workload takes up to a minute; crash_pool has twelve
	crash) programs crash crash 1500 "$O" ;;
	model)
		# half a billion operations when it may take long
		programs model model 1500 "$O"
		scripts model 600 "$O" tests/model/*.py
		;;
	stress) programs stress stress 300 "$O" ;;
	# a minute, or two hours; what a round leaves to settle comes on top
	soak) programs soak soak 900 "$O" ;;
	# answers of "in use" take two seconds each
	cli) scripts cli 300 "$O" tests/cli/test_* ;;
	lint) scripts lint 60 "$O" tests/lint/*.sh tests/lint/*.py ;;
	ablate)
		export B TEST_SHORT=1
		O=$B/ablate start ablate short 300 tests/ablate.py short
		O=$B/ablate start ablate planted 900 tests/ablate.py planted
		O=$B/ablate start ablate refusals 600 tests/ablate.py refusals
		unset TEST_SHORT
		;;
	guards) O=$B/ablate start_pieces guards ablate 1200 env JOBS=1 tests/ablate.py full ;;
	planted) O=$B/ablate start_pieces planted ablate 1200 env JOBS=1 tests/ablate.py planted ;;
	refusals) O=$B/ablate start refusals ablate 1200 tests/ablate.py refusals ;;
	asan | tsan)
		build=$B/address
		[ "$suite" = tsan ] && build=$B/thread
		# every program of it, each of them short: instruments make hours of minutes
		is_long=${TEST_LONG-}
		unset TEST_LONG
		export TEST_SHORT=1
		programs "$suite" unit 240 "$build"
		programs "$suite" golden 240 "$build"
		programs "$suite" conform 240 "$build"
		if [ -n "$is_long" ]; then
			for folder in crash model stress soak; do
				programs "$suite" $folder 900 "$build"
			done
			# some load a library into an interpreter that knows no sanitizer
			[ "$suite" = tsan ] || ASAN_OPTIONS=verify_asan_link_order=0 \
				scripts "$suite" 600 "$build" tests/cli/test_*
			export TEST_LONG=$is_long
		fi
		unset TEST_SHORT
		;;
	threads)
		export TEST_SHORT=1
		for p in "$B"/thread/tests/stress_*{threads,space,txn}; do
			start threads "$(basename "$p")" 240 "$p"
		done
		unset TEST_SHORT
		;;
	fuzz)
		# two million executions in about two minutes; decoders are fast, images slow.
		# Half a billion when it may take long
		while read -r name runs secs; do
			O=$B/fuzz start_pieces fuzz "$name" $((secs + 180)) \
				tests/fuzz/run.sh "$name" $((runs * factor)) $((secs * factor))
		done <<-END
			kvdb $((factor > 1 ? 8000 : 4000)) $((factor > 1 ? 220 : 100))
			pool $((factor > 1 ? 40000 : 15000)) $((factor > 1 ? 200 : 130))
			text $((factor > 1 ? 350000 : 150000)) 300
			decode $((factor > 1 ? 33000000 : 1900000)) $((factor > 1 ? 1500 : 300))
		END
		;;
	uml)
		while [ "$(jobs -rp | wc -l)" -ge "$JOBS" ]; do
			wait -n
		done
		B=$B O=$O UML_TIMEOUT=$((1800 * factor)) sanitized uml tests/kmod/uml/run.sh &
		;;
	debug)
		B=$B O=$O VM_TIMEOUT=$((1800 * factor)) sanitized debug tests/kmod/uml/debug.sh &
		;;
	vm)
		kernels=${VM_KERNELS:-$(tests/kmod/kernels.sh boot)}
		which=only
		[ "$(wc -w <<<"$kernels")" -lt 2 ] || which=first
		if ! type qemu-system-x86_64 busybox >/dev/null 2>&1; then
			skipped vm "no qemu-system-x86_64 or no busybox"
		elif [ -z "$kernels" ]; then
			skipped vm "no kernel headers, 6.1 or newer"
		fi
		for kver in $kernels; do
			while [ "$(jobs -rp | wc -l)" -ge "$JOBS" ]; do
				wait -n
			done
			vm "$kver" "$which" &
			which=other
		done
		# what needs machines or kernels of its own
		[ -n "${VM_TESTS-}" ] || scripts vm 900 "$O" tests/kmod/host_*.sh
		;;
	kmod) here ;;
	*)
		echo "run.sh: unknown suite $suite" >&2
		exit 2
		;;
	esac
done
wait

# added: of rows "KEY | line | figure | seed | result" that have the same key and differ in
# numbers only one is made, with the sum of each number but for those behind "of"; without KEY
added() {
	awk -F ' *[|] *' -v OFS=' | ' '
	{
		line = ""; n = 0; rest = $3
		while (match(rest, /[0-9]+/)) {
			word = substr(rest, 1, RSTART - 1)
			num = substr(rest, RSTART, RLENGTH)
			rest = substr(rest, RSTART + RLENGTH)
			if (word ~ /of $/)
				line = line word num
			else {
				line = line word "\1"
				val[++n] = num
			}
		}
		key = $1 SUBSEP $2 SUBSEP line rest SUBSEP $4
		if (!(key in count)) {
			order[++keys] = key
			good[key] = $5
		}
		count[key] = n
		for (i = 1; i <= n; i++)
			sum[key, i] += val[i]
		if ($5 != "ok")
			good[key] = $5
	}
	END {
		for (k = 1; k <= keys; k++) {
			split(order[k], f, SUBSEP)
			for (i = 1; i <= count[order[k]]; i++)
				sub("\1", sprintf("%.0f", sum[order[k], i]), f[3])
			print f[2], f[3], f[4], good[order[k]]
		}
	}'
}

# rows: line | figure | seed | result
table() {
	local sum out p f s good
	for sum in "$log"/*.sum; do
		[ -e "$sum" ] || continue
		out=${sum%.sum}
		read -r p f s <"$sum"
		good=ok
		[ "$f" = 0 ] || good=FAIL
		# the n-th figure of each piece is one
		awk -v name="$(basename "${out%+*}")" -v good=$good 'sub(/^# figure: /, "") {
			print name "." ++n " | " $0 " | " good
		}' "$out"
	done | added | sort
	for sum in "$log"/*.sum; do
		[ -e "$sum" ] || continue
		out=$(basename "$sum")
		echo "${out%%.*} $(cat "$sum")"
	done | awk '{ p[$1] += $2; f[$1] += $3; s[$1] += $4 }
		END {
			for (i in p)
				printf "suite %s | %d tests%s | | %s\n", i, p[i] + f[i],
					s[i] ? ", " s[i] " skipped" : "", f[i] ? "FAIL" : "ok"
		}' | sort
}

# what failed, once more: a long log is often kept without its middle
failures() {
	local sum p f s
	for sum in "$log"/*.sum; do
		[ -e "$sum" ] || continue
		read -r p f s <"$sum"
		[ "$f" = 0 ] && continue
		echo "FAIL $(basename "${sum%.sum}"), $f of $((p + f + s))"
		grep '^not ok' "${sum%.sum}" | head -n 20 | sed 's/^/    /'
	done
}
echo
table | awk -F ' *[|] *' '{ printf "%-22s %-66s %-20s %s\n", $1, $2, $3, $4 }'
echo
failures
cat "$log"/*.sum 2>/dev/null | awk '
	{ p += $1; f += $2; s += $3 }
	END {
		printf "%d passed, %d failed, %d skipped\n", p, f, s
		exit !(f == 0 && p > 0)
	}'
