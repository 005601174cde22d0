/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/* Arrays that grow by doubling; sorted arrays of ids. */
#ifndef KV_VEC_H
#define KV_VEC_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/*
 * Makes room for @need elements of @size bytes. @vec is the address of the pointer to the first,
 * *@cap the number that fits; an unused array is NULL and 0. -ENOMEM changes nothing.
 */
int kv_vec_grow(void *vec, uint32_t *cap, size_t need, size_t size);

void kv_ids_sort(uint64_t *id, size_t n);

/* Whether @id is one of the @n sorted ones. */
bool kv_ids_have(const uint64_t *ids, size_t n, uint64_t id);

#endif
