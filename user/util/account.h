/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Memory accounts: a limit and the current use of the session, of each process in it, and of a file
 * that is read. Accounts form a tree. A charge applies to an account and all its ancestors, or to
 * none of them. A container whose size depends on a target or on a file takes the account that it
 * is charged to; NULL means no limit.
 *
 * The container's owner decides what a refusal means: something is not kept, and is counted.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct account {
	struct account *parent; /* borrowed; NULL: none */
	uint64_t limit;         /* bytes; 0: unlimited */
	/*
	 * used may be at most share times what the parent has left; 0: all of it. Early users get
	 * most of the memory but never all of it, and the number of users need not be known in
	 * advance.
	 */
	uint32_t share;
	/*
	 * bytes; up to the floor the share does not apply: the account may use whatever the parent
	 * has left
	 */
	uint64_t floor;
	/* bytes of what it has left that are kept for child accounts within their floor */
	uint64_t reserve;
	uint64_t used;    /* bytes */
	uint64_t refused; /* refused charges, including those of descendants */
};

/* 0; -EDQUOT: over a limit, nothing was charged. */
int account_charge(struct account *account, size_t bytes);
/* Bytes left of its limit, which must not be 0. */
uint64_t account_left(const struct account *account);
/* Gives back bytes that were charged. */
void account_uncharge(struct account *account, size_t bytes);
/* Changes a charge from old to new bytes, as account_charge(); shrinking never fails. */
int account_resize(struct account *account, size_t old, size_t new);
/* Gives back everything that is charged: its containers are freed. */
void account_clear(struct account *account);
/*
 * The limit for data built from a file of the given size: 64 MiB plus ratio times the bytes, so
 * that a small crafted file cannot exhaust memory.
 */
uint64_t account_file_limit(uint64_t bytes, uint32_t ratio);
/* Whether an error means that something was not kept for lack of memory or quota. */
bool account_is_full(int err);
