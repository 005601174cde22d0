/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/*
 * A database with two stores, and transactions in it, for the tests of those.
 */
#ifndef TESTS_KVDB_TXN_HELP_H
#define TESTS_KVDB_TXN_HELP_H

#include "kvdb_help.h"

static struct kvdb_kvs *ka, *kb;

static inline void fresh(void)
{
	kh_fresh(192 * MIB, 0);
	ka = kh_kvs("a");
	kb = kh_kvs("b");
}

static inline struct kvdb_txn *begin(unsigned flags)
{
	struct kvdb_txn *t = NULL;

	T_EQ(kvdb_txn_begin(kh_db, flags, &t), 0);
	T_OK(t);
	return t;
}

static inline int tput(struct kvdb_txn *t, struct kvdb_kvs *k, const char *key, const char *val)
{
	return kvdb_txn_put(t, k, key, strlen(key), val, strlen(val));
}

#endif
