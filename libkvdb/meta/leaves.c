/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/* Leaves as the container has them. */
#include <errno.h>

#include "base/assert.h"
#include "base/error.h"
#include "base/guard.h"
#include "base/key.h"
#include "run/run.h"
#include "tree/leaf.h"
#include "meta/mdc.h"

int kv_leaf_check(const struct kv_mdc_kvs *k, struct kv_run *r)
{
	const struct kv_run_desc *d = &r->rn_desc;
	const struct kv_kblock *a = r->rn_kb, *b;
	const struct kv_mdc_leaf *lf = k->mk_leaf, *end = lf + k->mk_nleaf;

	if (!d->rd_leaf || !r->rn_nkeyed)
		return 0;
	b = a + r->rn_nkeyed - 1;
	while (lf < end && lf->ml_id != d->rd_leaf)
		lf++;
	if (CHECK(lf < end &&
		  kv_kcmp(lf->ml_key, lf->ml_klen, a->kb_min, a->kb_min_klen) <= 0 &&
		  (lf + 1 == end || kv_kcmp(b->kb_max, b->kb_max_klen, lf[1].ml_key,
					    lf[1].ml_klen) < 0)))
		return 0;
	return kv_error(-EUCLEAN, "MP0960", "run %llu of store %u holds keys outside of its leaf",
			(unsigned long long)d->rd_id, k->mk_id);
}

static int leaf_cmp(const struct kv_mdc_leaf *a, const struct kv_mdc_leaf *b)
{
	return kv_kcmp(a->ml_key, a->ml_klen, b->ml_key, b->ml_klen);
}

int kv_leaves_load(const struct kv_mdc_kvs *k, struct kv_leaf **out)
{
	for (uint32_t i = 0; i < k->mk_nleaf; i++) {
		KV_ASSERT(i ? leaf_cmp(&k->mk_leaf[i - 1], &k->mk_leaf[i]) < 0 :
			!k->mk_leaf[0].ml_klen);
		out[i] = kv_leaf_new(k->mk_leaf[i].ml_key, k->mk_leaf[i].ml_klen);
		if (!out[i]) {
			while (i--)
				kv_leaf_put(out[i]);
			return -ENOMEM;
		}
		out[i]->lf_id = k->mk_leaf[i].ml_id;
	}
	return 0;
}
