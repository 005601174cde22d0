#!/bin/bash
# SPDX-License-Identifier: GPL-2.0-only OR MIT
#
# Checkers that others wrote: shellcheck on the scripts, sparse on the core
# (endianness of media structures), the syntax of Python files and udev rules.
# Where a tool is absent its test is skipped.

cd "$(dirname "$0")/../.." || exit 1
. tests/lint/lib.sh

name=shell_scripts_pass_shellcheck
if command -v shellcheck >/dev/null; then
	mapfile -t scripts < <(grep -rlE '^#!/bin/(ba)?sh' tests utils kmod .ci | grep -v '/build/')
	shellcheck -S warning -x -P SCRIPTDIR "${scripts[@]}" >"$TMPDIR/out" 2>&1
	verdict $name
else
	skip $name "no shellcheck"
fi

name=python_files_compile
find tests utils -name '*.py' -print0 |
	xargs -0 -r python3 -c '
import ast, sys
for f in sys.argv[1:]:
    try:
        ast.parse(open(f).read(), f)
    except SyntaxError as e:
        print(e)' >"$TMPDIR/out" 2>&1
verdict $name

# sparse must find the planted mistake, else its silence means nothing
sparse_flags=(-std=gnu11 -Wbitwise -Wno-decl -D__CHECK_ENDIAN__ -D_GNU_SOURCE=
	-D_FILE_OFFSET_BITS=64 -Ikmod/core -Ilibmpool)
name=core_is_clean_under_sparse
if command -v sparse >/dev/null; then
	for f in kmod/core/*.c; do
		sparse "${sparse_flags[@]}" "$f" 2>&1 | grep -E '^kmod/|^libmpool/os_user'
	done >"$TMPDIR/out"
	verdict $name
	echo '#include "os.h"' >"$TMPDIR/planted.c"
	echo 'u32 planted(__le32 x); u32 planted(__le32 x) { return x; }' >>"$TMPDIR/planted.c"
	: >"$TMPDIR/out"
	sparse "${sparse_flags[@]}" "$TMPDIR/planted.c" 2>&1 |
		grep -q 'incorrect type\|different base types' ||
		echo "sparse did not see an __le32 used as a number" >"$TMPDIR/out"
	verdict sparse_sees_a_planted_mistake
else
	skip $name "no sparse"
	skip sparse_sees_a_planted_mistake "no sparse"
fi

# a build folder that tests run from is not compiled anew because ccache stands in front
name=ccache_in_front_is_the_same_compiler
mkdir "$TMPDIR/bin"
printf '#!/bin/sh\nexec "$@"\n' >"$TMPDIR/bin/ccache"
chmod +x "$TMPDIR/bin/ccache"
for cc in cc "ccache cc"; do
	env -u MAKEFLAGS -u MAKELEVEL -u MFLAGS PATH="$TMPDIR/bin:$PATH" \
		make -s B="$TMPDIR/b" CC="$cc" "$TMPDIR/b/flags" && cat "$TMPDIR/b/flags"
done 2>&1 | sort | uniq -c | grep -v '^ *2 ' >"$TMPDIR/out"
verdict $name

name=udev_rules_are_well_formed
# each line that is neither blank, comment nor continuation is KEY op "value", ...
# (udevadm verify exists from systemd 254 on only)
sed -e ':a;/\\$/{N;s/\\\n//;ba}' udev/*.rules | grep -vE '^(#|$)' | awk '
	{
		s = $0 ","
		while (match(s, /^[ \t]*[A-Z_]+(\{[^}]*\})?(==|!=|\+=|:=|=)"[^"]*"[ \t]*,/))
			s = substr(s, RLENGTH + 1)
		if (s !~ /^[ \t]*$/)
			print "not understood: " $0
	}
	/GOTO="/ { match($0, /GOTO="[^"]*/); g[substr($0, RSTART + 6, RLENGTH - 6)] = 1 }
	/LABEL="/ { match($0, /LABEL="[^"]*/); l[substr($0, RSTART + 7, RLENGTH - 7)] = 1 }
	END { for (x in g) if (!(x in l)) print "no LABEL " x }' >"$TMPDIR/out"
verdict $name

echo "1..$n"
exit $failed
