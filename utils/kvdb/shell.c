/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/*
 * The verb shell: commands on one open database, from a terminal or a script.
 *
 * A line is a command and its words. A word with blanks, quotes or a leading
 * '#' stands in double quotes; the escapes of the tsv format work everywhere
 * (\t \n \r \\ \xHH), and \" in quotes. In a script the first command that
 * fails ends the shell with its exit code; on a terminal it goes on. Between
 * begin and commit everything is done in one transaction, which the end of the
 * input aborts.
 */
#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "cli.h"
#include "size.h"

#define WORDS   8
#define HISTORY 100
#define SCAN_DEFAULT 20 /* records on a terminal */

const struct opt shell_opts[] = {
	{ "read-only", 'r', OPT_FLAG, 0, NULL, "open for reading only", NULL, NULL },
	{ "keep-going", 'k', OPT_FLAG, 0, NULL, "go on after a command of a script failed", NULL,
	  NULL },
	DB_OPTS_WRITE,
	{ .name = NULL },
};

struct shell {
	struct ui *ui;
	struct kvdb *db;
	struct kvdb_kvs *kvs;
	struct kvdb_txn *txn;         /* between begin and commit or abort */
	char name[KVDB_NAME_MAX + 1]; /* of kvs */
	struct bytes word[WORDS];     /* each ended by NUL, which its length does not count */
	int n;
	bool is_end;
	uint64_t line;
	char *history[HISTORY];
	unsigned nhistory;
	void *buf;
};

static int complain(struct shell *sh, int code, const char *what, const char *way)
{
	char where[40];

	snprintf(where, sizeof(where), "line %" PRIu64, sh->line);
	return ui_error(sh->ui, code, where, way, "%s", what);
}

static const char *word(struct shell *sh, int i)
{
	return (const char *)sh->word[i].p;
}

/* ---- the line --------------------------------------------------------------- */

/* Takes the next word; 1 = there is one, 0 = none, -EINVAL. */
static int split_one(const char **p, struct bytes *out)
{
	const char *s = *p, *from;
	bool quoted;
	int rc = 0;

	while (*s == ' ' || *s == '\t')
		s++;
	if (!*s || *s == '#')
		return 0;
	quoted = *s == '"';
	from = s += quoted;
	out->len = 0;
	while (!rc && *s && (quoted ? *s != '"' : *s != ' ' && *s != '\t')) {
		if (*s == '\\' && s[1] == '"' && quoted) {
			rc = esc_decode(out, from, (size_t)(s - from));
			from = s + 1;
			s++;
		} else if (*s == '\\' && s[1]) {
			s++;
		}
		s++;
	}
	if (!rc)
		rc = esc_decode(out, from, (size_t)(s - from));
	if (quoted && *s != '"')
		rc = rc ? rc : -EINVAL;
	*p = s + (quoted && *s);
	if (!rc)
		rc = bytes_add(out, "", 1);
	out->len -= !rc;
	return rc ? rc : 1;
}

static int split(struct shell *sh, const char *line)
{
	int rc = 1;

	for (sh->n = 0; rc == 1 && sh->n < WORDS; sh->n += rc == 1)
		rc = split_one(&line, &sh->word[sh->n]);
	if (rc == 1)
		return complain(sh, EXIT_USAGE, "too many words", "quote words that hold blanks");
	return rc ? complain(sh, EXIT_USAGE, "a quote or an escape is not complete",
			     "\\t \\n \\r \\\\ \\xHH are known, and \\\" in quotes") : EXIT_DONE;
}

/* What stands behind a zero byte would not be of a name or number. */
static bool has_zero(const struct bytes *w)
{
	return memchr(w->p, 0, w->len) != NULL;
}

/* ---- commands ------------------------------------------------------------------ */

static int no_store(struct shell *sh)
{
	return complain(sh, EXIT_USAGE, "no store is chosen", "use NAME; list shows the names");
}

static int sh_fail(struct shell *sh, const char *object, int rc)
{
	return rc ? db_fail(sh->ui, object, rc) : EXIT_DONE;
}

static int do_use(struct shell *sh)
{
	struct kvdb_kvs *kvs;
	int rc = kvdb_kvs_open(sh->db, word(sh, 1), &kvs);

	if (rc)
		return sh_fail(sh, word(sh, 1), rc);
	sh->kvs = kvs;
	snprintf(sh->name, sizeof(sh->name), "%s", word(sh, 1));
	return EXIT_DONE;
}

static int do_list(struct shell *sh)
{
	char (*names)[KVDB_NAME_MAX + 1];
	int n = kvs_names(sh->db, &names), i;

	for (i = 0; i < n; i++)
		puts(names[i]);
	return EXIT_DONE;
}

/* Stores do not change inside a transaction. */
static int in_txn(struct shell *sh)
{
	return complain(sh, EXIT_REFUSED, "a transaction is open", "commit or abort first");
}

static int do_create(struct shell *sh)
{
	int rc;

	if (sh->txn)
		return in_txn(sh);
	rc = kvdb_kvs_create(sh->db, word(sh, 1), NULL);
	return rc ? sh_fail(sh, word(sh, 1), rc) : do_use(sh);
}

static int do_drop(struct shell *sh)
{
	int rc;

	if (sh->txn)
		return in_txn(sh);
	rc = kvdb_kvs_drop(sh->db, word(sh, 1));
	if (!rc && sh->kvs && !strcmp(sh->name, word(sh, 1)))
		sh->kvs = NULL;
	return sh_fail(sh, word(sh, 1), rc);
}

static int do_rename(struct shell *sh)
{
	int rc = kvdb_kvs_rename(sh->db, word(sh, 1), word(sh, 2));

	if (!rc && sh->kvs && !strcmp(sh->name, word(sh, 1)))
		snprintf(sh->name, sizeof(sh->name), "%s", word(sh, 2));
	return sh_fail(sh, word(sh, 1), rc);
}

static int do_get(struct shell *sh)
{
	size_t vlen = 0;
	const struct bytes *k = &sh->word[1];
	int rc = sh->txn ? kvdb_txn_get(sh->txn, sh->kvs, k->p, k->len, sh->buf, KVDB_VALUE_MAX,
					&vlen) :
			   kvdb_get(sh->kvs, k->p, k->len, sh->buf, KVDB_VALUE_MAX, &vlen);

	if (rc == -ENOENT)
		return complain(sh, EXIT_NOTFOUND, "no such key", NULL);
	if (rc)
		return sh_fail(sh, sh->name, rc);
	esc_print(stdout, sh->buf, vlen);
	putchar('\n');
	return EXIT_DONE;
}

static int do_put(struct shell *sh)
{
	const struct bytes *k = &sh->word[1], *v = &sh->word[2];

	return sh_fail(sh, sh->name, sh->txn ?
		       kvdb_txn_put(sh->txn, sh->kvs, k->p, k->len, v->p, v->len) :
		       kvdb_put(sh->kvs, k->p, k->len, v->p, v->len));
}

static int do_del(struct shell *sh)
{
	const struct bytes *k = &sh->word[1];

	return sh_fail(sh, sh->name, sh->txn ? kvdb_txn_del(sh->txn, sh->kvs, k->p, k->len) :
		       kvdb_del(sh->kvs, k->p, k->len));
}

static int do_begin(struct shell *sh)
{
	unsigned flags = args_has(sh->ui->args, "read-only") ? KVDB_TXN_RDONLY : 0;

	return sh->txn ? in_txn(sh) : sh_fail(sh, NULL, kvdb_txn_begin(sh->db, flags, &sh->txn));
}

static int no_txn(struct shell *sh)
{
	return complain(sh, EXIT_USAGE, "no transaction is open", "begin opens one");
}

static int do_commit(struct shell *sh)
{
	struct kvdb_txn *txn = sh->txn;

	if (!txn)
		return no_txn(sh);
	sh->txn = NULL;
	return sh_fail(sh, NULL, kvdb_txn_commit(txn, 0, NULL));
}

static int do_abort(struct shell *sh)
{
	if (!sh->txn)
		return no_txn(sh);
	kvdb_txn_abort(sh->txn);
	sh->txn = NULL;
	return EXIT_DONE;
}

static int print_record(void *arg, const void *key, size_t klen, const void *val, size_t vlen)
{
	(void)arg;
	esc_print(stdout, key, klen);
	putchar('\t');
	esc_print(stdout, val, vlen);
	putchar('\n');
	return ferror(stdout);
}

static int do_scan(struct shell *sh)
{
	struct range r = { .limit = sh->ui->tty_in ? SCAN_DEFAULT : UINT64_MAX,
			   .txn = sh->txn };

	if (sh->n > 1)
		r.prefix = sh->word[1];
	if (sh->n > 2 && (has_zero(&sh->word[2]) || count_parse(word(sh, 2), &r.limit) ||
			  !r.limit))
		return complain(sh, EXIT_USAGE, "the limit is a number from 1 on", NULL);
	return sh_fail(sh, sh->name, range_walk(&r, sh->kvs, 0, print_record, NULL));
}

static int count_record(void *arg, const void *key, size_t klen, const void *val, size_t vlen)
{
	uint64_t *n = arg;

	(void)key;
	(void)klen;
	(void)val;
	(void)vlen;
	++*n;
	return 0;
}

static int do_count(struct shell *sh)
{
	struct range r = { .limit = UINT64_MAX, .txn = sh->txn };
	uint64_t n = 0;
	int rc;

	if (sh->n > 1)
		r.prefix = sh->word[1];
	rc = range_walk(&r, sh->kvs, KVDB_KEYS_ONLY, count_record, &n);
	if (!rc)
		printf("%" PRIu64 "\n", n);
	return sh_fail(sh, sh->name, rc);
}

static int do_sync(struct shell *sh)
{
	return sh_fail(sh, sh->ui->args->v[0], kvdb_sync(sh->db));
}

static int do_stats(struct shell *sh)
{
	struct kvdb_stats st;
	int rc = kvdb_stats(sh->db, &st);

	if (rc)
		return sh_fail(sh, NULL, rc);
#define X(f) printf("%-18s %" PRIu64 "\n", #f, st.f);
	KVDB_STATS_FIELDS(X)
#undef X
	return EXIT_DONE;
}

static int do_history(struct shell *sh)
{
	for (unsigned i = 0; i < sh->nhistory; i++)
		printf("%5u  %s\n", i + 1, sh->history[i]);
	return EXIT_DONE;
}

static int do_quit(struct shell *sh)
{
	sh->is_end = true;
	return EXIT_DONE;
}

static int do_help(struct shell *sh);

static const struct cmd {
	const char *name, *words;
	int min, max;
	bool needs_store;
	int (*run)(struct shell *sh);
	const char *help;
} cmds[] = {
	{ "use", "KVS", 1, 1, false, do_use, "work on this store from now on" },
	{ "list", "", 0, 0, false, do_list, "names of the stores" },
	{ "create", "KVS", 1, 1, false, do_create, "make a store and use it" },
	{ "drop", "KVS", 1, 1, false, do_drop, "remove a store and its records, without asking" },
	{ "rename", "KVS NAME", 2, 2, false, do_rename, "give a store another name" },
	{ "get", "KEY", 1, 1, true, do_get, "print a value" },
	{ "put", "KEY VALUE", 2, 2, true, do_put, "store a value" },
	{ "del", "KEY", 1, 1, true, do_del, "delete a key, whether or not it is there" },
	{ "scan", "[PREFIX [LIMIT]]", 0, 2, true, do_scan,
	  "print records in key order; on a terminal 20 unless LIMIT is given; \"\" = any" },
	{ "count", "[PREFIX]", 0, 1, true, do_count, "count keys by walking over them" },
	{ "begin", "", 0, 0, false, do_begin,
	  "begin a transaction on a snapshot; put, del, get, scan, count are in it" },
	{ "commit", "", 0, 0, false, do_commit, "end it: all of its writes, at once" },
	{ "abort", "", 0, 0, false, do_abort, "end it: none of its writes" },
	{ "sync", "", 0, 0, false, do_sync, "make everything so far durable" },
	{ "stats", "", 0, 0, false, do_stats, "print counters" },
	{ "history", "", 0, 0, false, do_history,
	  "the last lines typed; !N repeats one, !! the last" },
	{ "help", "", 0, 0, false, do_help, "this list" },
	{ "quit", "", 0, 0, false, do_quit, "end; so does the end of input" },
	{ "exit", "", 0, 0, false, do_quit, "the same" },
};

static int do_help(struct shell *sh)
{
	char left[48];

	(void)sh;
	for (size_t i = 0; i < sizeof(cmds) / sizeof(cmds[0]); i++) {
		snprintf(left, sizeof(left), "%s %s", cmds[i].name, cmds[i].words);
		printf("%-24s %s\n", left, cmds[i].help);
	}
	puts("Words with blanks stand in \"double quotes\"; \\t \\n \\r \\\\ \\xHH are escapes. "
	     "# begins a remark.");
	return EXIT_DONE;
}

static bool is_write(const struct cmd *c)
{
	return c->run == do_create || c->run == do_drop || c->run == do_rename ||
	       c->run == do_put || c->run == do_del;
}

/* Keys and values are any bytes; words of commands that need no store are names. */
static int check_names(struct shell *sh, const struct cmd *c)
{
	for (int i = 1; i < sh->n && !c->needs_store; i++)
		if (has_zero(&sh->word[i]))
			return complain(sh, EXIT_USAGE, "a zero byte in a name", NULL);
	return EXIT_DONE;
}

static int run_cmd(struct shell *sh, const struct cmd *c)
{
	char what[160];
	int rc;

	if (sh->n - 1 < c->min || sh->n - 1 > c->max) {
		snprintf(what, sizeof(what), "it is: %s %s", c->name, c->words);
		return complain(sh, EXIT_USAGE, what, NULL);
	}
	rc = check_names(sh, c);
	if (rc)
		return rc;
	/* the library's refusal is the one of a database that has stopped */
	if (is_write(c) && args_has(sh->ui->args, "read-only"))
		return complain(sh, EXIT_USAGE, "the shell is for reading only",
				"begin it without --read-only");
	return c->needs_store && !sh->kvs ? no_store(sh) : c->run(sh);
}

/*
 * What a script that goes on does next was meant for another store: none of it may go into
 * the one before. At a terminal, which shows the store, an error changes nothing.
 */
static void not_chosen(struct shell *sh)
{
	if (!sh->kvs || sh->ui->tty_in || !args_has(sh->ui->args, "keep-going"))
		return;
	sh->kvs = NULL;
	ui_note(sh->ui, "no store is chosen until the next use or create");
}

static int run_words(struct shell *sh)
{
	char what[160];
	size_t i;

	for (i = 0; i < sizeof(cmds) / sizeof(cmds[0]); i++)
		if (!strcmp(cmds[i].name, word(sh, 0)) && !has_zero(&sh->word[0]))
			return run_cmd(sh, &cmds[i]);
	snprintf(what, sizeof(what), "there is no command %.80s", word(sh, 0));
	return complain(sh, EXIT_USAGE, what, "help lists the commands");
}

static int run_line(struct shell *sh, const char *line)
{
	int rc = split(sh, line);

	if (!rc && sh->n)
		rc = run_words(sh);
	if (rc && sh->n && (!strcmp(word(sh, 0), "use") || !strcmp(word(sh, 0), "create")))
		not_chosen(sh);
	return rc;
}

/* ---- the loop --------------------------------------------------------------------- */

/* A line that repeats an older one: that one, else the line; NULL: no such. */
static const char *recall(struct shell *sh, const char *line)
{
	unsigned long n = sh->nhistory;

	if (line[0] != '!' || !sh->ui->tty_in)
		return line;
	if (strcmp(line, "!!"))
		n = strtoul(line + 1, NULL, 10);
	if (!n || n > sh->nhistory)
		return NULL;
	puts(sh->history[n - 1]);
	return sh->history[n - 1];
}

static void remember(struct shell *sh, const char *line)
{
	/* before the oldest goes: that may be the line */
	char *copy = sh->ui->tty_in && *line ? strdup(line) : NULL;

	if (!copy)
		return;
	if (sh->nhistory == HISTORY) {
		free(sh->history[0]);
		memmove(sh->history, sh->history + 1, (HISTORY - 1) * sizeof(sh->history[0]));
		sh->nhistory--;
	}
	sh->history[sh->nhistory++] = copy;
}

static void prompt(struct shell *sh)
{
	if (!sh->ui->tty_in)
		return;
	printf("%s%s> ", sh->kvs ? sh->name : "kvdb", sh->txn ? " (transaction)" : "");
	fflush(stdout);
}

static int loop(struct shell *sh)
{
	bool is_script = !sh->ui->tty_in;
	char *line = NULL;
	size_t room = 0;
	ssize_t len = 0;
	int code = EXIT_DONE, rc;

	if (!is_script && !sh->ui->quiet)
		puts("help lists the commands, quit ends");
	for (prompt(sh); !sh->is_end && (len = getline(&line, &room, stdin)) >= 0; prompt(sh)) {
		const char *text;

		sh->line++;
		len -= line[len - 1] == '\n';
		line[len] = 0;
		text = recall(sh, line);
		/* what follows a zero byte must not be left out in silence */
		if (strlen(line) != (size_t)len)
			rc = complain(sh, EXIT_USAGE, "a zero byte", "\\x00 stands for it");
		else
			rc = text ? run_line(sh, text) :
				    complain(sh, EXIT_NOTFOUND, "no such line",
					     "history lists them");
		if (text)
			remember(sh, text);
		if (rc && is_script && !code)
			code = rc;
		if ((rc && is_script && !args_has(sh->ui->args, "keep-going")) || ferror(stdout))
			break;
	}
	/* neither the end nor "quit": what there was to read is not known */
	if (len < 0 && !feof(stdin))
		code = ui_error(sh->ui, EXIT_FAILED, "standard input", NULL, "%s",
				strerror(errno));
	if (!is_script && !sh->is_end)
		putchar('\n');
	free(line);
	return code;
}

int verb_shell(struct ui *ui)
{
	struct shell sh = { .ui = ui };
	const char *path = ui->args->v[0];
	int rc, i;

	if (ui->json)
		return ui_usage(ui, "the shell prints text; scan, dump, stats and others have -j");
	rc = db_open(ui, path, args_has(ui->args, "read-only") ? KVDB_RDONLY : 0, &sh.db);
	if (rc)
		return rc;
	sh.buf = malloc(KVDB_VALUE_MAX);
	if (!sh.buf)
		rc = ui_fail(ui, path, -ENOMEM, NULL);
	if (!rc && ui->args->n > 1) {
		rc = kvdb_kvs_open(sh.db, ui->args->v[1], &sh.kvs);
		if (rc)
			rc = db_fail(ui, ui->args->v[1], rc);
		else
			snprintf(sh.name, sizeof(sh.name), "%s", ui->args->v[1]);
	}
	if (!rc)
		rc = loop(&sh);
	if (sh.txn && !ui->quiet)
		ui_note(ui, "the open transaction was aborted");
	kvdb_txn_abort(sh.txn);
	rc = db_close(ui, path, sh.db, rc);
	for (i = 0; i < WORDS; i++)
		bytes_free(&sh.word[i]);
	while (sh.nhistory)
		free(sh.history[--sh.nhistory]);
	free(sh.buf);
	return rc;
}
