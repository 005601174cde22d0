/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/*
 * What the two commands share below their verbs: sizes and times as typed and as
 * shown, JSON text, exit codes, the parser's edge cases.
 */
#include <errno.h>

#include "args.h"
#include "exitcode.h"
#include "harness.h"
#include "json.h"
#include "size.h"

static uint64_t size_of(const char *s)
{
	uint64_t v = 0;
	int rc = size_parse(s, &v);

	if (rc)
		T_FAIL("size_parse(%s) = %d", s, rc);
	return v;
}

static void sizes_are_read_as_documented(void)
{
	T_EQ(size_of("0"), 0);
	T_EQ(size_of("8192"), 8192);
	T_EQ(size_of("4KiB"), 4096);
	T_EQ(size_of("4kb"), 4096);
	T_EQ(size_of("4k"), 4096);
	T_EQ(size_of("64M"), 64ll << 20);
	T_EQ(size_of("1.5T"), 3ll << 39);
	T_EQ(size_of("100B"), 100);
	T_EQ(size_of("9007199254740993"), 9007199254740993ll);
	T_OK(size_of("18446744073709551615") == UINT64_MAX);
}

static void bad_sizes_are_refused(void)
{
	static const char *const bad[] = {
		"", "-1", "+1", " 1", "1 ", "1 M", "M", ".", "1..5M", "0x10", "1e6", "1MM",
		"1Mi B", "inf", "nan", "1,5M", "1BK", "1Bi", "1.5", "0.4B",
	};
	uint64_t v = 77;

	for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++)
		if (size_parse(bad[i], &v) != -EINVAL)
			T_FAIL("size_parse(\"%s\") was accepted", bad[i]);
	T_EQ(size_parse("18446744073709551616", &v), -ERANGE);
	T_EQ(size_parse("16384P", &v), -ERANGE);
	T_EQ(v, 77);
}

static void counts_and_times_are_read(void)
{
	uint64_t v = 0;

	T_EQ(count_parse("2M", &v), 0);
	T_EQ(v, 2000000);
	T_EQ(count_parse("2MiB", &v), -EINVAL);
	T_EQ(count_parse("1.5", &v), -EINVAL);
	T_EQ(v, 2000000);
	T_EQ(count_parse("1.5K", &v), 0);
	T_EQ(v, 1500);
	T_EQ(count_parse("3.0", &v), 0);
	T_EQ(v, 3);
	T_EQ(time_parse("100ms", &v), 0);
	T_EQ(v, 100000000);
	T_EQ(time_parse("1.5s", &v), 0);
	T_EQ(v, 1500000000);
	T_EQ(time_parse("5m", &v), 0);
	T_EQ(v, 300000000000ll);
	T_EQ(time_parse("30d", &v), 0);
	T_EQ(v, 30 * 86400 * 1000000000ull);
	T_EQ(time_parse("0", &v), 0);
	T_EQ(v, 0);
	T_EQ(time_parse("100", &v), -EINVAL);
	T_EQ(time_parse("100 ms", &v), -EINVAL);
}

static void sizes_and_times_are_shown_short(void)
{
	char b[SIZE_STR];

	T_STREQ(size_str(b, 0), "0");
	T_STREQ(size_str(b, 512), "512");
	T_STREQ(size_str(b, 1023), "1023");
	T_STREQ(size_str(b, 1024), "1K");
	T_STREQ(size_str(b, 1536), "1.5K");
	T_STREQ(size_str(b, (1ull << 30) - 1), "1G");
	T_STREQ(size_str(b, 10ull << 30), "10G");
	T_STREQ(size_str(b, 100ull << 20), "100M");
	T_STREQ(size_str(b, UINT64_MAX), "16E");
	T_STREQ(time_str(b, 999), "999ns");
	T_STREQ(time_str(b, 1500), "1.5us");
	T_STREQ(time_str(b, 100000000), "100ms");
	T_STREQ(time_str(b, 90000000000ull), "90s");
}

static void one_is_not_many(void)
{
	char b[SIZE_STR];

	T_STREQ(count_str(b, 0, "record"), "0 records");
	T_STREQ(count_str(b, 1, "record"), "1 record");
	T_STREQ(count_str(b, 2, "record"), "2 records");
	T_STREQ(count_str(b, UINT64_MAX, "deletion"), "18446744073709551615 deletions");
	T_STREQ(bytes_str(b, 1), "1 byte");
	T_STREQ(bytes_str(b, 1023), "1023 bytes");
}

/* What the writer makes of @len bytes as one compact document. */
static void json_of(char *out, size_t size, const void *s, size_t len)
{
	FILE *f = fmemopen(out, size, "w");
	struct json j;

	T_OK(f != NULL);
	json_init(&j, f, true);
	json_obj(&j, NULL);
	json_strn(&j, "s", s, len);
	json_u64(&j, "n", UINT64_MAX);
	json_f64(&j, "x", 0.0 / 0.0);
	json_end(&j);
	fclose(f);
}

static void json_text_is_valid_utf8(void)
{
	char out[256];

	json_of(out, sizeof(out), "a\"\\\n\t\x01\x7f", 7);
	T_STREQ(out, "{\"s\":\"a\\\"\\\\\\n\\t\\u0001\\u007f\","
		"\"n\":18446744073709551615,\"x\":null}\n");
	json_of(out, sizeof(out), "\xc3\xa9\xe2\x82\xac", 5);
	T_OK(strstr(out, "\"\xc3\xa9\xe2\x82\xac\""));
	/* overlong, surrogate, cut and stray bytes */
	json_of(out, sizeof(out), "\xc0\x80", 2);
	T_OK(strstr(out, "\"\\ufffd\\ufffd\""));
	json_of(out, sizeof(out), "\xed\xa0\x80", 3);
	T_OK(strstr(out, "\"\\ufffd\\ufffd\\ufffd\""));
	json_of(out, sizeof(out), "x\xe2\x82", 3);
	T_OK(strstr(out, "\"x\\ufffd\\ufffd\""));
}

static void errors_become_documented_exit_codes(void)
{
	T_EQ(exit_from_error(0, ""), EXIT_DONE);
	T_EQ(exit_from_error(-EIO, "MP0144"), EXIT_FAILED);
	T_EQ(exit_from_error(-ENOSPC, "MP0416"), EXIT_FAILED);
	T_EQ(exit_from_error(-EFBIG, "MP0416"), EXIT_FAILED);
	T_EQ(exit_from_error(-EINVAL, "MP0413"), EXIT_USAGE);
	T_EQ(exit_from_error(-EINVAL, ""), EXIT_FAILED);
	T_EQ(exit_from_error(-ENOENT, NULL), EXIT_NOTFOUND);
	T_EQ(exit_from_error(-EINVAL, "MP0101"), EXIT_NOTFOUND);
	T_EQ(exit_from_error(-EBUSY, "MP0403"), EXIT_BUSY);
	/* no thread is not open elsewhere */
	T_EQ(exit_from_error(-EAGAIN, "MP0994"), EXIT_FAILED);
	T_EQ(exit_from_error(-EAGAIN, "MP0998"), EXIT_FAILED);
	T_EQ(exit_from_error(-EAGAIN, "MP0433"), EXIT_FAILED);
	T_EQ(exit_from_error(-EPERM, "MP0406"), EXIT_REFUSED);
	T_EQ(exit_from_error(-EPERM, ""), EXIT_PERMISSION);
	T_EQ(exit_from_error(-EPERM, "MP0301"), EXIT_PERMISSION);
	T_EQ(exit_from_error(-EPERM, "MP0404"), EXIT_PERMISSION);
	T_EQ(exit_from_error(-EPERM, "MP0408"), EXIT_PERMISSION);
	T_EQ(exit_from_error(-EPERM, "MP0972"), EXIT_PERMISSION);
	T_EQ(exit_from_error(-EEXIST, "MP0405"), EXIT_REFUSED);
	T_EQ(exit_from_error(-EUCLEAN, "MP0102"), EXIT_DAMAGE);
	T_EQ(exit_from_error(-ENODEV, "MP0409"), EXIT_DAMAGE);
	T_EQ(exit_from_error(-EOPNOTSUPP, "MP0400"), EXIT_UNSUPPORTED);
	T_EQ(exit_from_error(-EACCES, "MP0404"), EXIT_PERMISSION);
}

static const struct opt opts[] = {
	{ "size", 's', OPT_SIZE, 0, "SIZE", "a size", "capsz", NULL },
	{ "dev", 0, OPT_STR, OPTF_MULTI, "DEV", "a device", NULL, NULL },
	{ "yes", 'y', OPT_FLAG, 0, NULL, "yes", NULL, NULL },
	{ NULL, 0, 0, 0, NULL, NULL, NULL, NULL },
};

static const struct verb verbs[] = {
	{ .name = "make", .operands = "A [B...]", .min = 1, .max = 3, .opts = opts },
	{ .name = "put", .operands = "A B", .min = 2, .max = 2 },
	{ .name = "kvs make", .operands = "A", .min = 1, .max = 1 },
	{ .name = NULL },
};

static const struct tool tool = { .name = "tool", .verbs = verbs };
static struct args a;

#define PARSE(...) \
	args_parse(&tool, (int)(sizeof((char *[]){ __VA_ARGS__ }) / sizeof(char *)), \
		   (char *[]){ __VA_ARGS__ }, &a)

static void command_lines_are_read_in_any_order(void)
{
	unsigned pos = 0;

	T_EQ(PARSE("tool", "-j", "make", "-y", "x", "--dev=1", "capsz=1K", "--dev", "2", "y"), 0);
	T_STREQ(a.verb->name, "make");
	T_OK(args_has(&a, "json") && args_has(&a, "yes"));
	T_EQ(args_num(&a, "size", 0), 1024);
	T_STREQ(args_next(&a, "dev", &pos)->str, "1");
	T_STREQ(args_next(&a, "dev", &pos)->str, "2");
	T_OK(!args_next(&a, "dev", &pos));
	T_EQ(a.n, 2);
	T_EQ(PARSE("tool", "make", "-ys4K", "x"), 0);
	T_EQ(args_num(&a, "size", 0), 4096);
	T_EQ(PARSE("tool", "kvs", "make", "x"), 0);
	T_STREQ(a.verb->name, "kvs make");
}

static void operands_may_look_like_options(void)
{
	T_EQ(PARSE("tool", "put", "--", "-a", "--b"), 0);
	T_STREQ(a.v[0], "-a");
	T_STREQ(a.v[1], "--b");
	T_EQ(PARSE("tool", "put", "-", ""), 0);
	T_STREQ(a.v[0], "-");
	/* a verb without keys takes key=value as it is */
	T_EQ(PARSE("tool", "put", "a=b", "size=1"), 0);
	T_EQ(a.n, 2);
	T_EQ(PARSE("tool", "make", "--", "capsz=1"), 0);
	T_STREQ(a.v[0], "capsz=1");
	T_OK(!args_has(&a, "size"));
}

static void bad_command_lines_say_why(void)
{
	T_EQ(PARSE("tool"), EXIT_USAGE);
	T_EQ(PARSE("tool", "kvs"), EXIT_USAGE);
	T_EQ(PARSE("tool", "make"), EXIT_USAGE);
	T_EQ(PARSE("tool", "make", "1", "2", "3", "4"), EXIT_USAGE);
	T_OK(strstr(a.error, "'4'"));
	T_EQ(PARSE("tool", "make", "x", "--siz", "1"), EXIT_USAGE);
	T_OK(strstr(a.error, "--siz"));
	T_EQ(PARSE("tool", "make", "x", "other=1"), EXIT_USAGE);
	T_OK(strstr(a.error, "./other=1"));
	T_EQ(PARSE("tool", "make", "x", "-s", "1", "capsz=2"), EXIT_USAGE);
	T_OK(strstr(a.error, "twice"));
}

int main(void)
{
	T_RUN(sizes_are_read_as_documented);
	T_RUN(bad_sizes_are_refused);
	T_RUN(counts_and_times_are_read);
	T_RUN(sizes_and_times_are_shown_short);
	T_RUN(one_is_not_many);
	T_RUN(json_text_is_valid_utf8);
	T_RUN(errors_become_documented_exit_codes);
	T_RUN(command_lines_are_read_in_any_order);
	T_RUN(operands_may_look_like_options);
	T_RUN(bad_command_lines_say_why);
	return t_done();
}
