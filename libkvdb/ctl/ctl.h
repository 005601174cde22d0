/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/*
 * The control socket of a live database (R20), in three parts: ctl.c serves
 * it, ctl_cmd.c knows the requests, ctl_json.c their text.
 */
#ifndef KV_CTL_H
#define KV_CTL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct kvdb;

#define KV_CTL_LINE	4096u		/* bytes of a request, its newline included */
#define KV_CTL_ANSWER	(4u << 20)	/* bytes of an answer */
#define KV_CTL_MEMBERS	16u
#define KV_CTL_DEPTH	8u

/*
 * kv_ctl_start - serve the database; @db is complete and takes writes; @pool as it was opened
 * Without a place for the socket, memory or descriptors the database works as
 * well; d_ctl is NULL then and kvdb_info.ctl is empty.
 */
void kv_ctl_start(struct kvdb *db, const char *pool);
/* Ends service: waits for the request being answered. Before anything else is torn down. */
void kv_ctl_stop(struct kvdb *db);

/* ---- ctl_json.c ------------------------------------------------------------- */

/* A request: one flat object; values of every scalar type as text. */
struct kv_ctl_req {
	char rq_text[KV_CTL_LINE];	/* names and values, each ended by NUL */
	const char *rq_name[KV_CTL_MEMBERS];
	const char *rq_val[KV_CTL_MEMBERS];
	unsigned rq_n;
	const char *rq_why;		/* what is wrong, after -EINVAL */
};
/* 0 or -EINVAL. @len < KV_CTL_LINE. */
int kv_ctl_parse(struct kv_ctl_req *r, const char *line, size_t len);
const char *kv_ctl_arg(const struct kv_ctl_req *r, const char *name); /* or NULL */

/* An answer under construction. Errors are sticky: out of memory, too long. */
struct kv_ctl_out {
	char *ou_p;
	size_t ou_len, ou_cap;
	unsigned ou_depth;
	bool ou_is_array[KV_CTL_DEPTH], ou_has_item[KV_CTL_DEPTH];
	bool ou_bad;
};
void kv_out_begin(struct kv_ctl_out *o);		/* { of the document */
void kv_out_done(struct kv_ctl_out *o);			/* closes what is open, and newline */
void kv_out_obj(struct kv_ctl_out *o, const char *name);	/* name NULL in an array */
void kv_out_arr(struct kv_ctl_out *o, const char *name);
void kv_out_end(struct kv_ctl_out *o);
void kv_out_u64(struct kv_ctl_out *o, const char *name, uint64_t v);
void kv_out_i64(struct kv_ctl_out *o, const char *name, int64_t v);
void kv_out_bool(struct kv_ctl_out *o, const char *name, bool v);
void kv_out_str(struct kv_ctl_out *o, const char *name, const char *s);
void kv_out_free(struct kv_ctl_out *o);

/* ---- ctl_cmd.c --------------------------------------------------------------- */

/* Answers one request line; @o holds a complete answer afterwards, also of an error. */
void kv_ctl_command(struct kvdb *db, const char *line, size_t len, struct kv_ctl_out *o);
/* The answer that says an error of this thread (kv_error()). */
void kv_ctl_refuse(struct kv_ctl_out *o);

#endif
