#!/bin/bash
# SPDX-License-Identifier: GPL-2.0-only OR MIT
#
# The administrator's verbs of mpool on pools in files: properties, growth, objects, scrub and
# history; what they refuse.

# tests are called by name, and words are split on purpose
# shellcheck disable=SC2317,SC2086,SC2154,SC2119 source=admin.sh
. "$(dirname "$0")/admin.sh"

get_prints_properties() {
	pool
	same label "$(value label)" "a label"
	same mode "$(value mode)" 0600
	want 0 mpool get ./p
	has out '^KEY +VALUE'
	has out '^free_staging +[0-9.]+M'
	want 0 mpool get -j ./p
	schema mpool_get
	same all "$(field '"spare_staging" in d["properties"]')" True
	want 0 mpool get -j ./p uid name
	schema mpool_get
	same asked "$(field 'sorted(d["properties"])')" "['name', 'uid']"
	want 2 mpool get ./p frobs
	one_line_error
	want 3 mpool get ./none
	one_line_error
}

set_changes_what_is_given() {
	pool
	want 0 mpool set ./p mode=0660 gid=12
	same mode "$(value mode)" 0660
	same gid "$(value gid)" 12
	same label "$(value label)" "a label"
	want 0 mpool set ./p --label "another label"
	same label "$(value label)" "another label"
	same mode "$(value mode)" 0660
	want 0 mpool set ./p spare_staging=10
	same staging "$(value spare_staging)" 10
	same capacity "$(value spare_capacity)" 0
	[ "$(value reserve_staging)" -gt $((3 << 20)) ] || fail "nothing is withheld"
	want 0 mpool set ./p spare=7 spare_capacity=5
	same both "$(value spare_capacity) $(value spare_staging)" "5 7"
	want 0 mpool set -j ./p uid=3
	schema mpool_set
	want 0 mpool verify ./p
}

# beat OFFSET N: bytes of the heartbeat's block
beat() { tail -c +$((4097 + $1)) p/capacity.mp | head -c "$2"; }
claim() { beat 32 8 | od -An -tx8; }
count() { beat 40 8 | od -An -tx8; }

multihost_keeps_a_heartbeat() {
	local first
	want 2 mpool create ./p --size 64M --multihost perhaps
	want 0 mpool create ./p --size 64M
	same default "$(value multihost)" no
	want 0 mpool set ./p multihost=on
	same on "$(value multihost)" yes
	same magic "$(beat 0 8)" mpoolHst
	same closed "$(claim)" " 0000000000000000"
	kvdb create ./p
	mkfifo go
	kvdb load --create ./p s go >/dev/null 2>&1 &
	exec 7>go
	for ((i = 0; i < 100; i++)); do
		[ "$(claim)" = " 0000000000000000" ] || break
		sleep 0.1
	done
	first=$(count)
	sleep 1.5
	[ "$(count)" != "$first" ] || fail "no heartbeat in 1.5 s"
	exec 7>&-
	wait
	same closed "$(claim)" " 0000000000000000"
	want 0 mpool set ./p multihost=off
	same off "$(value multihost)" no
	want 0 mpool verify ./p
	want 0 mpool create ./q --size 64M --multihost on
	want 0 mpool get -H -o value ./q multihost
	has out yes
}

# what it is told by a host that it cannot see otherwise; the file stands for a shared disk
multihost_knows_another_host() {
	want 0 mpool create ./p --size 64M --multihost on
	python3 "$CLI/beat.py" p/capacity.mp far-away &
	for ((i = 0; i < 100; i++)); do
		! grep -qa far-away <(beat 48 8) || break
		sleep 0.1
	done
	want 4 mpool set ./p label=x
	has err 'host far-away writes its heartbeat there.*MP0125'
	want 4 mpool verify ./p
	want 4 mpool destroy -y ./p
	kill %1
	wait
	want 0 mpool set ./p label=x
}

set_refuses() {
	pool
	before=$(sums .)
	want 2 mpool set ./p
	want 2 mpool set ./p colour=blue
	want 2 mpool set ./p mode=999
	unchanged "$before" .
	want 2 mpool set ./p label="$(printf '%064d' 0)"
	one_line_error
	want 2 mpool set ./p label="$(printf 'x\033y')"
	want 2 mpool set ./p spare=91
	want 2 mpool set ./p gid=no-such-group
	has err "'no-such-group' is not valid, wanted the name of a group that there is"
	one_line_error
	same label "$(value label)" "a label"
	want 3 mpool set ./none uid=1
}

rename_keeps_the_folder() {
	pool
	uuid=$(value uuid)
	want 0 mpool rename ./p archive
	same name "$(value name)" archive
	same uuid "$(value uuid)" "$uuid"
	want 0 mpool verify ./p
	want 0 mpool rename -j ./p other
	schema mpool_rename
	want 0 blkid -p -o value -s LABEL p/capacity.mp
	same label "$(cat "$S/out")" other
	want 2 mpool rename ./p .hidden
	one_line_error
	want 2 mpool rename ./p "a b"
	same name "$(value name)" other
}

add_takes_files() {
	pool
	before=$(value size_capacity)
	want 0 mpool add -n ./p ./more.mp --size 64M
	has out 'would add'
	[ ! -e more.mp ] || fail "the plan made a file"
	want 0 mpool add ./p ./more.mp --size 64M
	same devices "$(value devices_capacity)" 2
	[ "$(value size_capacity)" -gt $((before + (60 << 20))) ] || fail "nothing was gained"
	same mode "$(stat -c %a more.mp)" 600
	want 0 mpool add -j --staging ./p ./fast.mp --size 32M
	schema mpool_add
	same devices "$(value devices_staging)" 2
	want 0 mpool verify ./p
	want 0 mpool destroy -y ./p
	same left "$(ls)" ""
}

add_makes_a_class() {
	want 0 mpool create ./p --size 64M
	want 0 mpool add ./p --staging ./fast.mp --size 32M
	want 0 mpool list -H -o classes ./p
	same classes "$(cat "$S/out")" capacity,staging
	want 0 mpool verify ./p
}

add_refuses_what_holds_data() {
	pool
	truncate -s 64M other.img
	mkfs.ext4 -q -F other.img
	before=$(sums other.img)
	want 5 mpool add ./p ./other.img --size 64M
	one_line_error
	want 5 mpool add -j ./p ./other.img --size 64M
	schema error err
	unchanged "$before" other.img
	same devices "$(value devices_capacity)" 1
	want 0 mpool verify ./p
}

grow_makes_files_larger() {
	pool
	before=$(value size_capacity)
	want 0 mpool grow ./p --size 128M
	has out 'capacity from .* to '
	[ "$(value size_capacity)" -gt $((before + (60 << 20))) ] || fail "nothing was gained"
	same size "$(stat -c %s p/capacity.mp)" $((128 << 20))
	want 0 mpool grow -j ./p --class staging --size 64M
	schema mpool_grow
	want 0 mpool verify ./p
	want 2 mpool grow ./p --size 32M
	one_line_error
	want 2 mpool grow ./p --class staging
	want 0 mpool verify ./p
	want 0 mpool create ./q --size 64M
	want 2 mpool grow ./q --class staging --size 64M
	has err 'no device of class staging'
}

# all files of the class have the new size afterwards, or each the one that it had
more_than_the_file_system_has_is_said() {
	want 0 mpool create ./p --size 64M
	more=$(($(df --output=avail -B1M . | tail -n 1) + 1024))
	want 0 mpool add -n ./p ./more.mp --size ${more}M
	one_line_error
	has err '^mpool: \./more\.mp: the file system has .* free, less than'
	want 0 mpool grow ./p --size ${more}M
	one_line_error
	has err '^mpool: \./p/capacity\.mp: the file system has .* free, less than'
	want 0 mpool -q grow ./p --size $((more + 1))M
	same err "$(cat "$S/err")" ""
	want 2 mpool add ./p ./more.mp
	has err 'more\.mp is not there, and would be a file'
}

grow_that_is_refused_changes_nothing() {
	want 0 mpool create ./p --size 64M
	want 0 mpool add ./p ./p/more.mp --size 128M
	want 0 mpool add ./p ./last.mp --size 64M
	local was="67108864 134217728 67108864"
	want 2 mpool grow ./p --size 96M
	one_line_error
	has err 'more.mp has 134217728 bytes, more than 100663296'
	same sizes "$(stat -c %s p/capacity.mp p/more.mp last.mp | xargs)" "$was"
	cat >noroom.c <<-'END'
	#define _GNU_SOURCE
	#include <errno.h>
	#include <stdlib.h>
	#include <sys/syscall.h>
	#include <unistd.h>
	static int has_room(const char *call)
	{
		static int n;
		errno = ENOSPC;
		return !getenv(call) || ++n != atoi(getenv(call));
	}
	int ftruncate(int fd, long len)
	{
		return has_room("FTRUNCATE") ? (int)syscall(SYS_ftruncate, fd, len) : -1;
	}
	int ftruncate64(int fd, long len)
	{
		return ftruncate(fd, len);
	}
	int fallocate(int fd, int mode, long off, long len)
	{
		return has_room("FALLOCATE") ? (int)syscall(SYS_fallocate, fd, mode, off, len) : -1;
	}
	int fallocate64(int fd, int mode, long off, long len)
	{
		return fallocate(fd, mode, off, len);
	}
	END
	${CC:-cc} -shared -fPIC -o noroom.so noroom.c 2>/dev/null || skip "no compiler"
	# of one of the files, and of what is written to the new end of one of them
	for n in FTRUNCATE=1 FTRUNCATE=2 FTRUNCATE=3 FALLOCATE=1 FALLOCATE=3; do
		want 1 env LD_PRELOAD="$PWD/noroom.so" ASAN_OPTIONS=verify_asan_link_order=0 $n \
			mpool grow ./p --size 160M
		one_line_error
		same "sizes after $n" "$(stat -c %s p/capacity.mp p/more.mp last.mp | xargs)" "$was"
		want 0 mpool verify ./p
	done
	want 0 mpool grow ./p --size 160M
	same sizes "$(stat -c %s p/capacity.mp p/more.mp last.mp | xargs)" \
		"167772160 167772160 167772160"
	want 0 mpool verify ./p
}

objects_and_df() {
	pool
	fill 3
	want 0 mpool objects ./p
	has out '^ID +TYPE'
	want 0 mpool objects -H -o capacity,state -p --type mblock ./p
	same lines "$(sort "$S/out" | uniq -c | tr -s ' \t' ' ')" " 3 65536 committed"
	want 0 mpool objects -j ./p
	schema mpool_objects out --lines
	want 0 mpool objects -H --type mblock --class staging ./p
	same stdout "$(cat "$S/out")" ""
	want 0 mpool df -H -p -o class,size ./p
	same classes "$(cut -f1 "$S/out" | xargs)" "capacity staging"
	want 0 mpool df -j ./p
	schema mpool_df
	want 0 mpool df -H -p -o allocated ./p
	same "what the file system counts" "$(cat "$S/out")" \
		"$(stat -c '%b %B' ./p/capacity.mp ./p/staging.mp | awk '{ print $1 * $2 }')"
	want 0 mpool df -o help ./p
	has out '^reserve'
	want 3 mpool df ./none
}

scrub_finds_damage() {
	pool
	fill 5
	before=$(sums .)
	want 0 mpool scrub ./p
	has out '5 objects, 320K read, 0 damaged'
	want 0 mpool scrub -j ./p
	schema mpool_scrub
	unchanged "$before" .
	# one byte of the third object
	want 0 mpool map -j ./p
	python3 - "$S/out" <<-'EOF'
	import json, sys
	at = [e for e in map(json.loads, open(sys.argv[1])) if e.get("kind") == "mblock"]
	at.sort(key=lambda e: e["id"])
	with open("p/capacity.mp", "r+b") as f:
	    f.seek(at[2]["offset"] + 777)
	    f.write(b"\x5a")
	print(*[e["id"] for e in at], file=open("ids", "w"))
	EOF
	read -ra id <ids
	want 6 mpool scrub ./p
	has out "^damage: object $(printf 0x%x "${id[2]}"), capacity: its CRC32C is"
	want 6 mpool scrub -j ./p
	schema mpool_scrub
	same damaged "$(field '[f["id"] for f in d["findings"]]')" "[${id[2]}]"
	want 0 mpool scrub -j --from "${id[3]}" ./p
	same rest "$(field 'd["objects"]')" 2
}

scrub_keeps_its_rate_and_resumes() {
	pool
	fill 8
	start=$(date +%s%N)
	want 0 mpool scrub --rate 512K --progress=json ./p
	took=$((($(date +%s%N) - start) / 1000000))
	[ $took -ge 800 ] || fail "512K at 512K/s took $took ms"
	tail -n 1 "$S/err" >"$S/last"
	schema progress last
	mpool scrub --rate 64K ./p >out 2>err &
	pid=$!
	sleep 1.5
	kill -INT $pid 2>/dev/null || fail "it did not wait"
	rc=0
	wait $pid || rc=$?
	same interrupted $rc 1
	from=$(sed -n 's/.*go on with --from \(0x[0-9a-f]*\).*/\1/p' err)
	[ -n "$from" ] || fail "it does not say how to go on: $(cat err)"
	want 0 mpool scrub --from "$from" ./p
}

history_is_kept_in_the_pool() {
	pool
	want 0 mpool set ./p label="x; y"
	want 0 mpool rename ./p q
	want 2 mpool set ./p mode=frob
	want 0 mpool history -H -o user,command ./p
	sed -i 's/^[^\t]*\t//' "$S/out"
	same history "$(cat "$S/out")" "$(printf '%s\n' \
		"mpool create --size=64M --staging-size=32M --label='a label' ./p" \
		"mpool set --label='x; y' ./p" 'mpool rename ./p q')"
	want 0 mpool history -j ./p
	schema mpool_history
	same uid "$(field 'd["commands"][0]["uid"]')" "$(id -u)"
	before=$(sums .)
	want 0 mpool history ./p
	unchanged "$before" .
	want 0 mpool verify ./p
}

# its logs are full several times over; the newest 1000 are kept. In memory, where
# flushes cost nothing
history_keeps_the_newest() {
	local count=160
	[ -n "${TEST_LONG-}" ] && count=1080
	dir=$(mktemp -d -p /dev/shm 2>/dev/null) || dir=$PWD
	cd "$dir" || exit 1
	trap 'rm -rf "$dir"' EXIT
	pool
	for i in $(seq 1 $count); do
		mpool set ./p label=$i || fail "set $i"
	done
	want 0 mpool history -H -o command ./p
	same newest "$(tail -n 1 "$S/out")" "mpool set --label=$count ./p"
	n=$(wc -l <"$S/out")
	# all of them with the create, or a thousand less what the last full log dropped
	[ $count -lt 1000 ] && same lines "$n" $((count + 1))
	case $count.$n in 160.161 | 1080.9?? | 1080.1000) ;; *) fail "$n lines" ;; esac
	# without a gap
	sed -n 's/.*label=\([0-9]*\).*/\1/p' "$S/out" | awk 'NR > 1 && $1 != last + 1 { exit 1 }
		{ last = $1 }' || fail "there is a gap"
	want 0 mpool verify ./p
}

history_never_fails_a_verb() {
	want 0 mpool create ./p --size 2M
	want 0 mpool history -H ./p
	same none "$(cat "$S/out")" ""
	want 0 mpool set ./p label=small
	want 0 mpool verify ./p
}

# what is pasted into a shell does what was done, and nothing else
a_command_of_the_history_can_be_typed_again() {
	local was="it's \$(touch made) \`x\` a\\b\"c"
	want 0 mpool create ./p --size 16M
	want 0 mpool set ./p label="$was"
	want 0 mpool set ./p label=
	want 0 mpool history -H -o command ./p
	same empty "$(tail -n 1 "$S/out")" "mpool set --label='' ./p"
	sed -n 2p "$S/out" | bash
	[ ! -e made ] || fail "the label was executed"
	same label "$(value label)" "$was"
}

run get_prints_properties
run set_changes_what_is_given
run multihost_keeps_a_heartbeat
run multihost_knows_another_host
run set_refuses
run rename_keeps_the_folder
run add_takes_files
run add_makes_a_class
run add_refuses_what_holds_data
run grow_makes_files_larger
run more_than_the_file_system_has_is_said
run grow_that_is_refused_changes_nothing
run objects_and_df
run scrub_finds_damage
run scrub_keeps_its_rate_and_resumes
run history_is_kept_in_the_pool
run a_command_of_the_history_can_be_typed_again
run history_keeps_the_newest
run history_never_fails_a_verb
finish
