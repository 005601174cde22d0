/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/*
 * Histories of transactions and their check by dependency graph.
 *
 * Every write makes a version with a name of its own and says which version of
 * the key it replaced; every read says which version it saw. So the order of a
 * key's versions is known, and with it which must lie before which:
 *	ww: wrote the version that the other replaced
 *	wr: wrote the version that the other read
 *	rw: read a version that the other replaced
 * Snapshot isolation allows a cycle only where two rw follow one another (write
 * skew). All other cycles, and reads of what was never committed, are named by
 * the bits of enum hist_bit.
 */
#ifndef TESTS_MODEL_HIST_H
#define TESTS_MODEL_HIST_H

#include <stdbool.h>
#include <stdint.h>

enum hist_bit {
	HB_INTERNAL	= 1 << 0,	/* own write not seen, or a read that did not repeat */
	HB_G1A		= 1 << 1,	/* aborted read */
	HB_G1B		= 1 << 2,	/* intermediate read */
	HB_G0		= 1 << 3,	/* cycle of ww */
	HB_G1C		= 1 << 4,	/* cycle of ww and wr */
	HB_LOST		= 1 << 5,	/* lost update: two replaced the same version */
	HB_FRACTURED	= 1 << 6,	/* part of a transaction's writes seen */
	HB_SINGLE	= 1 << 7,	/* cycle with one rw */
	HB_NONADJACENT	= 1 << 8,	/* cycle with rw that never follow one another */
	HB_STALE	= 1 << 9,	/* did not see what had ended before it began */
	HB_PHANTOM	= 1 << 10,	/* a version that was never written */
	HB_SKEW		= 1 << 11,	/* write skew: two rw in a row; allowed */
	HB_BITS		= 12,
};

/* a version: 0 = the one before all transactions, else transaction << 8 | its nth write */
typedef uint64_t hist_ver;
#define HIST_VER(txn, n)	((uint64_t)(txn) << 8 | (n))

struct hist_op {
	uint32_t ho_key;
	bool ho_is_write;
	hist_ver ho_ver;	/* written, or seen */
	hist_ver ho_prev;	/* of a write: what it replaced */
};

enum hist_state { HIST_ABORTED, HIST_COMMITTED };

struct hist_txn {
	uint32_t ht_first, ht_n;	/* operations */
	uint8_t ht_state;
	uint64_t ht_begin, ht_end;	/* call of begin, return of commit; 0 = not known */
};

/* transactions have the numbers 1 .. hi_n; 0 is the one that was before */
struct hist {
	struct hist_txn *hi_txn;
	struct hist_op *hi_op;
	uint32_t hi_n, hi_cap, hi_nop, hi_op_cap, hi_keys;
};

struct hist_verdict {
	unsigned hv_bits;
	uint64_t hv_ww, hv_wr, hv_rw;
	uint64_t hv_skews;		/* sets of transactions in write skew */
	char hv_why[1000];		/* the first anomaly, in words */
};

void hist_init(struct hist *h, uint32_t keys);
void hist_fini(struct hist *h);
/* a new transaction; the operations added next belong to it */
uint32_t hist_begin(struct hist *h, uint64_t begin);
void hist_read(struct hist *h, uint32_t key, hist_ver ver);
/* returns the version's name; @prev as known by the caller */
hist_ver hist_write(struct hist *h, uint32_t key, hist_ver prev);
void hist_end(struct hist *h, enum hist_state state, uint64_t end);
/* a number for a transaction that runs beside others, and later what it did */
uint32_t hist_reserve(struct hist *h);
void hist_fill(struct hist *h, uint32_t no, const struct hist_op *op, uint32_t n, uint64_t begin,
	       enum hist_state state, uint64_t end);
void hist_check(const struct hist *h, struct hist_verdict *out);
/* "lost update, write skew" */
const char *hist_names(unsigned bits, char *buf, unsigned size);

/*
 * From text, for example "rx0 wx c | rx1 wy<0 a": transactions 1, 2, ...
 * separated by '|'; rx2 reads what transaction 2 wrote last to key x, rx2.1 its
 * first write, rx0 the first version; wx replaces what this transaction read
 * or wrote before of x, wx<2 what transaction 2 wrote; c commits, a aborts;
 * [3,7] in front: begin and end. False: cannot be read.
 */
bool hist_parse(struct hist *h, const char *text);

/* a store in memory that keeps snapshot isolation, but for its faults */
enum hist_fault {
	HF_NONE,
	HF_SERIAL,		/* one at a time: no write skew either */
	HF_NO_CONFLICT,		/* no test whether a newer version was committed */
	HF_READ_LATEST,		/* reads see the newest committed version */
	HF_READ_DIRTY,		/* reads see what is not committed */
	HF_ABORT_STAYS,		/* an abort leaves its first write */
	HF_TORN_COMMIT,		/* a commit becomes visible key by key */
	HF_TWO_VIEWS,		/* the view moves once, in the middle */
	HF_OLD_VIEW,		/* the view lies before the newest commits */
	HF_PLAIN_PUT,		/* plain puts ignore the owner of the key */
	HF_OWN_UNSEEN,		/* does not read its own writes */
	HF_FAULTS,
};
extern const char *const hist_fault_name[];
/* one in so many operations meets the fault */
void hist_generate(struct hist *h, uint64_t seed, uint32_t txns, uint32_t keys,
		   enum hist_fault fault, unsigned every);

#endif
