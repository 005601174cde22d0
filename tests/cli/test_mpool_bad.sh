#!/bin/bash
# SPDX-License-Identifier: GPL-2.0-only OR MIT
#
# Bad input to mpool: what is not a pool, no longer a pool, or not ours to use.
# Always one clear message, the documented exit status, and not a byte changed.

# tests are called by name, and words are split on purpose
# shellcheck disable=SC2317,SC2086 source=lib.sh
. "$(dirname "$0")/lib.sh"

pool() {
	want 0 mpool create ./p --size 16M "$@"
}

# refused CODES PATH [brief]: no verb reads or destroys PATH; each exits with one
# of CODES and one message that names PATH. status reports bad health on stdout.
refused() {
	local codes=$1 path=$2 before rc v verbs
	verbs=("list" "verify" "dump" "map" "destroy -y" "status --exit")
	[ $# -gt 2 ] || verbs+=("verify --data" "destroy -n" "list -j" "verify -j" "dump -j"
		"map -j" "destroy -y -j")
	before=$(sums .)
	for v in "${verbs[@]}"; do
		rc=0
		mpool $v "$path" >"$S/out" 2>"$S/err" </dev/null || rc=$?
		case " $codes " in
		*" $rc "*) ;;
		*) cat "$S/out" "$S/err"; fail "$v $path exited $rc, wanted one of $codes" ;;
		esac
		if [ "$v" = "status --exit" ] && [ $rc = 6 ]; then
			has out 'health: [a-z]+'
			has out 'cause: '
		elif [[ $v == *-j ]]; then
			# verify may have printed its findings first
			schema error err
		elif [[ $v == verify* ]] && grep -q '^damage: ' "$S/out"; then
			:
		else
			one_line_error
			grep -qF "$path" "$S/err" || fail "$v does not name $path: $(cat "$S/err")"
			has err '\[MP[0-9]{4}\]$'
		fi
		unchanged "$before" .
	done
}

nothing_there_exits_3() {
	refused 3 ./none
	mkdir empty
	refused 3 ./empty brief
	refused 3 ./none/deeper brief
}

a_file_that_is_not_a_pool_exits_3() {
	echo hello >file
	refused 3 ./file
	head -c 4M /dev/urandom >image
	refused 3 ./image
}

a_directory_with_strange_files_is_refused() {
	mkdir d
	echo '{ not json' >d/pool.json
	refused "3 6" ./d
	python3 -c 'print("[" * 100000)' >d/pool.json
	refused "3 6" ./d
	head -c 4M /dev/zero >d/capacity.mp
	refused "3 6" ./d
	rm d/pool.json
	refused "3 6" ./d
	# a link is never followed
	ln -s /etc/hostname d/pool.json
	refused 1 ./d
}

truncated_pools_exit_6() {
	for size in 12M 1M; do
		pool
		truncate -s $size p/capacity.mp
		refused 6 ./p brief
		rm -r p
	done
	# too short to hold a superblock: nothing says that this was a member
	pool
	for size in 4096 0; do
		truncate -s $size p/capacity.mp
		refused 3 ./p
	done
	rm p/capacity.mp
	refused 6 ./p
}

a_missing_staging_file_exits_6() {
	pool --staging-size 8M
	mv p/staging.mp kept
	refused 6 ./p
	mv kept p/staging.mp
	want 0 mpool verify ./p
}

# poke FILE OFFSET BYTE
poke() {
	printf "\\x$(printf %02x $3)" | dd of="$1" bs=1 seek="$2" conv=notrunc status=none
}

# Single flipped bits wherever the media holds something: never a crash, never
# a write by a verb that reads, always a documented status.
flipped_bits_are_found_or_harmless() {
	pool --staging-size 8M
	want 0 mpool map -H -p -o device,offset ./p
	cp "$S/out" extents
	seen=0
	while read -r dev off; do
		file=p/capacity.mp
		[ "$dev" = 0 ] || file=p/staging.mp
		for at in 3 58 63 70 1000; do
			byte=$(od -An -tu1 -N1 -j $((off + at)) $file)
			poke $file $((off + at)) $((byte ^ 16))
			before=$(b2sum p/*)
			for v in verify "status --exit" dump map "list"; do
				rc=0
				mpool $v ./p >"$S/out" 2>"$S/err" </dev/null || rc=$?
				case $rc in
				0 | 3 | 6 | 7) ;;
				*) cat "$S/err"; fail "$v: $rc after a flip at $dev:$off+$at" ;;
				esac
				if [ "$v" = verify ] && { [ $rc != 0 ] ||
					grep -q repairable "$S/out"; }; then
					seen=$((seen + 1))
				fi
			done
			same "after a flip at $dev:$off+$at" "$(b2sum p/*)" "$before"
			poke $file $((off + at)) $byte
		done
	done < <(head -n 12 extents)
	want 0 mpool verify ./p
	[ $seen -ge 10 ] || fail "only $seen flips were noticed"
}

# A member reformatted by another tool belongs to that tool.
reformatted_members_are_never_written() {
	for kind in ext4 xfs luks lvm gpt swap micron; do
		pool
		python3 "$CLI/images.py" $kind p/capacity.mp
		refused "3 6 7" ./p brief
		rm -r p
	done
}

foreign_signatures_refuse_create() {
	for kind in ext4 xfs luks lvm gpt swap micron; do
		truncate -s 16M dev.img
		python3 "$CLI/images.py" $kind dev.img
		before=$(sums .)
		want 5 mpool create ./p ./dev.img --size 16M
		one_line_error
		has err '/dev\.img.*\(use -f to overwrite\)'
		has err '\[MP[0-9]{4}\]$'
		want 5 mpool create -j ./p ./dev.img --size 16M
		schema error err
		want 5 mpool create -n ./p ./dev.img --size 16M
		has out 'dev\.img.*holds: '
		# -y answers a question, it does not override a check
		want 5 mpool create -y ./p ./dev.img --size 16M
		# as a staging member too
		want 5 mpool create ./p --size 16M --staging ./dev.img --staging-size 16M
		# -f overrides the check, it does not answer the question
		want 5 mpool create -f ./p ./dev.img --size 16M
		has err 'use -y'
		want 0 mpool create -f -n ./p ./dev.img --size 16M
		unchanged "$before" .
		rm dev.img
	done
}

force_wipes_what_was_there() {
	for kind in ext4 gpt lvm; do
		truncate -s 16M dev.img
		python3 "$CLI/images.py" $kind dev.img
		want 0 mpool create -f -y ./p ./dev.img --size 16M
		want 0 mpool verify ./p
		if command -v wipefs >/dev/null; then
			want 0 wipefs -n dev.img
			hasnt out "$kind|LVM2|PMBR"
		fi
		want 0 mpool destroy -y ./p
		rm -rf dev.img p
	done
}

a_member_of_another_pool_is_refused() {
	pool
	before=$(sums .)
	want 5 mpool create ./q ./p/capacity.mp --size 16M
	one_line_error
	unchanged "$before" .
}

# In /dev a file would lie in memory, and the pool with it.
# "create it again" is what the error says
a_creation_that_was_cut_is_repeated() {
	want 0 mpool create ./p --size 16M --staging-size 16M
	for f in capacity staging; do
		python3 "$CLI/images.py" unborn p/$f.mp
	done
	want 3 mpool status ./p
	has err 'interrupted .*MP0111'
	want 0 mpool create -n ./p --size 16M --staging-size 16M
	hasnt out 'holds'
	want 0 mpool create ./p --size 16M --staging-size 16M
	want 0 mpool verify ./p
	# only the copies of the superblock further on, of all members or of the first
	python3 "$CLI/images.py" early p/capacity.mp
	truncate -s 0 p/staging.mp
	truncate -s 16M p/staging.mp
	want 3 mpool status ./p
	want 0 mpool create ./p --size 16M --staging-size 16M
	want 0 mpool verify ./p
	for f in capacity staging; do
		python3 "$CLI/images.py" early p/$f.mp
	done
	want 0 mpool create ./p --size 16M --staging-size 16M
	# of a pool that there was they say so, and what others have written is theirs
	dd if=/dev/zero of=p/capacity.mp bs=4096 count=1 conv=notrunc 2>/dev/null
	want 5 mpool create ./p --size 16M --staging-size 16M
	rm p/staging.mp
	want 5 mpool create ./p --size 16M
	python3 "$CLI/images.py" unborn p/capacity.mp
	printf x | dd of=p/capacity.mp bs=1 seek=700 conv=notrunc 2>/dev/null
	want 5 mpool create ./p --size 16M
	# before its first write it has only reserved space
	mkdir q
	truncate -s 16M q/capacity.mp
	fallocate -l 4M q/capacity.mp
	want 0 mpool create ./q --size 16M
}

# the text that the library has room for ends before the path does
a_long_path_does_not_hide_the_reason() {
	long=$(printf 'x%.0s' {1..300})
	want 2 mpool create ./$long --size 16M
	one_line_error
	has err '^mpool: create .*: File name too long \(check the path'
	want 2 mpool status ./$long
	has err 'File name too long'
	deep=./$(printf 'd%.0s' {1..240})
	mkdir $deep
	want 0 mpool create $deep/p --size 16M
	want 0 mpool destroy -n $deep/p
	has out '16M +\./d.*\.\.\.d.*d/p/capacity\.mp  file'
	: >$deep/p/pool.json
	want 5 mpool create $deep/p --size 16M
	has err 'd/p has a pool.json already'
}

a_device_that_is_not_there_is_not_made_as_a_file() {
	local name=/dev/mpool-no-such-device
	want 2 mpool create ./q $name
	has err 'is not there, and would be a file'
	want 3 mpool create ./q $name --size 16M
	has err 'there is no device'
	one_line_error
	pool
	want 3 mpool add ./p $name --size 16M
	[ ! -e $name ] || fail "it was made"
}

a_file_is_no_pool() {
	pool
	want 3 mpool status ./p/capacity.mp
	has err 'is not a directory.*MP0401'
	want 5 mpool create ./q ./p/capacity.mp --size 16M
	has err " $PWD/p/capacity.mp belongs to a pool"
}

# A block device (a loop device, where one can be had): members are what they
# are, and after mkfs the device is the file system's.
block_devices_are_members_until_mkfs() {
	truncate -s 16M disk.img
	dev=$(losetup -f --show disk.img 2>/dev/null) || skip "no loop device can be had"
	# shellcheck disable=SC2064
	trap "losetup -d $dev" EXIT
	want 0 mpool create -n -j ./p "$dev"
	schema mpool_create
	same block "$(field 'd["devices"][0]["is_block"]')" True
	same size "$(field 'd["devices"][0]["size"]')" $((16 << 20))
	want 0 mpool create ./p "$dev"
	want 0 mpool status -j ./p
	same block "$(field 'd["pools"][0]["devices"][0]["is_block"]')" True
	want 5 mpool create ./q "$dev"
	one_line_error
	python3 "$CLI/images.py" ext4 disk.img
	sync disk.img
	blockdev --flushbufs "$dev"
	refused "3 6" ./p
	want 5 mpool create ./q "$dev"
	has err 'ext4'
}

a_file_under_a_loop_device_is_in_use() {
	pool
	dev=$(losetup -f --show p/capacity.mp 2>/dev/null) || skip "no loop device can be had"
	# shellcheck disable=SC2064
	trap "losetup -d $dev" EXIT
	want 4 mpool destroy -y ./p
	one_line_error
}

a_pool_open_elsewhere_exits_4() {
	lib=$O/lib/libmpool.so
	[ -e "$lib" ] || skip "no shared library was built"
	pool
	mkfifo end
	python3 "$CLI/hold.py" "$lib" ./p <end >held 2>&1 &
	exec 8>end
	for _ in $(seq 100); do
		[ -s held ] && break
		sleep 0.1
	done
	grep -q open held || { cat held; fail "the holder did not open the pool"; }
	refused 4 ./p
	want 5 mpool create ./p --size 16M
	want 0 mpool list -H -o path,health
	same listed "$(cat "$S/out")" "./p	busy"
	# in use is not unhealthy: a monitor stays silent
	want 0 mpool status -q -x --exit
	same stdout "$(cat "$S/out")" ""
	want 0 mpool status -q -x --exit ./p
	same output "$(cat "$S/out" "$S/err")" ""
	want 0 mpool status -j
	schema mpool_status
	same healthy "$(field 'd["pools"][0]["health"], d["pools"][0]["is_healthy"]')" \
		"('busy', True)"
	exec 8>&-
	wait
	want 0 mpool verify ./p
}

without_permission_exits_8() {
	can_drop_override || skip "modes of files do not count for this user"
	pool
	for what in p p/capacity.mp; do
		old=$(stat -c %a $what)
		chmod 000 $what
		for v in list verify dump map "destroy -y" status; do
			want 8 without_override mpool $v ./p
			one_line_error
			has err '\[MP[0-9]{4}\]$'
		done
		chmod "$old" $what
	done
	mkdir closed
	chmod 500 closed
	want 8 without_override mpool create ./closed/p --size 16M
	one_line_error
	same left "$(ls -A closed)" ""
	want 0 mpool verify ./p
}

a_file_size_limit_exits_1() {
	rc=0
	(
		ulimit -f 8192
		exec mpool create ./p --size 16M
	) >"$S/out" 2>"$S/err" </dev/null || rc=$?
	same status $rc 1
	one_line_error
	has err '\[MP[0-9]{4}\]$'
	[ ! -e p/capacity.mp ] || fail "capacity.mp was left behind"
}

a_full_file_system_exits_1() {
	mkdir fs
	# a file system of 256 KiB in a private name space; -r makes an ordinary user its root
	cmd='mount -t tmpfs -o size=256k none fs && cd fs && echo before >keep &&
		{ mpool create ./p --size 16M; echo status $?; ls -AR; }'
	own=
	[ "$(id -u)" = 0 ] || own=-r
	unshare -m $own true 2>/dev/null || skip "no private mount name space"
	unshare -m $own bash -c "$cmd" >"$S/out" 2>"$S/err" </dev/null ||
		skip "tmpfs cannot be mounted"
	has out '^status 1$'
	one_line_error
	has err '\[MP[0-9]{4}\]$'
	hasnt out 'capacity'
	has out '^keep$'
}

# read_only COMMAND...: in a name space of its own, where the folder cannot be written
read_only() {
	unshare -m $own bash -c 'mount --bind "$PWD" "$PWD" && cd "$PWD" &&
		mount -o remount,ro,bind "$PWD" && exec "$@"' - "$@"
}

a_read_only_file_system_exits_8() {
	own=
	[ "$(id -u)" = 0 ] || own=-r
	read_only true 2>/dev/null || skip "no private mount name space"
	pool
	want 0 kvdb -q create ./d --size 64M
	want 0 kvdb kvs create ./d s
	want 0 kvdb put ./d s k v
	for v in "destroy -y ./p" "set ./p mode=0640" "rename ./p q" "grow ./p --size 32M" \
		"create ./q --size 16M" "add ./p ./m --size 16M"; do
		want 8 read_only mpool $v
		one_line_error
		has err '[Rr]ead-only file system'
	done
	for v in "put ./d s k w" "del ./d s k" "drop ./d -y" "create ./e --size 64M" \
		"kvs create ./d t" "checkpoint create ./d c" "backup ./d ./bk"; do
		want 8 read_only kvdb $v
		one_line_error
		has err '[Rr]ead-only file system'
	done
	for v in "status" "verify" "dump" "map" "list" "df" "history"; do
		want 0 read_only mpool $v ./p
	done
	for v in "get ./d s k" "scan ./d s" "info ./d" "verify ./d" "kvs list ./d"; do
		want 0 read_only kvdb $v
	done
}

# EPERM of the system is no foreign signature, and -f no cure of it
what_the_system_forbids_exits_8() {
	mkdir f
	chattr +i f 2>/dev/null || skip "no immutable files here, or not for this user"
	pool
	want 0 kvdb -q create ./d --size 64M
	trap 'chattr -Rf -i f p d' EXIT
	chattr +i p/* d/* p d
	for v in "create ./f/q --size 16M" "create -n ./f/q --size 16M" "destroy -y ./p" \
		"set ./p mode=0640" "add ./p ./m --size 16M" "grow ./p --size 32M"; do
		want 8 mpool $v
		one_line_error
		has err 'not permitted \(check the path and its permissions\) \[MP040[48]\]$'
		hasnt out capacity
	done
	for v in "create ./f/q --size 64M" "kvs create ./d s" "drop -y ./d"; do
		want 8 kvdb $v
		one_line_error
	done
}

run nothing_there_exits_3
run a_file_that_is_not_a_pool_exits_3
run a_directory_with_strange_files_is_refused
run truncated_pools_exit_6
run a_missing_staging_file_exits_6
run flipped_bits_are_found_or_harmless
run reformatted_members_are_never_written
run foreign_signatures_refuse_create
run force_wipes_what_was_there
run a_member_of_another_pool_is_refused
run a_creation_that_was_cut_is_repeated
run a_long_path_does_not_hide_the_reason
run a_device_that_is_not_there_is_not_made_as_a_file
run a_file_is_no_pool
run block_devices_are_members_until_mkfs
run a_file_under_a_loop_device_is_in_use
run a_pool_open_elsewhere_exits_4
run without_permission_exits_8
run a_file_size_limit_exits_1
run a_full_file_system_exits_1
run a_read_only_file_system_exits_8
run what_the_system_forbids_exits_8
finish
