/* SPDX-License-Identifier: Apache-2.0 */
/*
 * How much memory may be held, and how much is: of the session, of each process in it, of a file
 * that is read. An account lies under another; a charge goes to it and to all above it, or is
 * refused by all. Containers that grow with what a target does or a file says take the account that
 * they are charged to; NULL stands for no limit.
 *
 * What a refusal means the owner of the container decides: something is not kept, and is counted.
 */
#ifndef TRACER_BASE_ACCOUNT_H
#define TRACER_BASE_ACCOUNT_H

#include <stddef.h>
#include <stdint.h>

struct account {
	struct account *parent; /* borrowed; NULL: none */
	uint64_t limit;         /* bytes; 0: any number */
	/*
	 * At most so many times what the parent has left; 0: all of it. So whoever comes first
	 * takes most of the memory but never all, and nobody needs to know how many will come.
	 */
	uint32_t share;
	/* up to this there is no share: it may have whatever the parent has left */
	uint64_t floor;
	/* of what it has left: only for accounts below it that stay within their floor */
	uint64_t reserve;
	uint64_t used;    /* bytes */
	uint64_t refused; /* charges to it, or to one below it */
};

/* 0; -EDQUOT: there is no room for it, nothing was charged. */
int account_charge(struct account *account, size_t bytes);
/* What its limit, which is not 0, leaves of itself. */
uint64_t account_left(const struct account *account);
/* Of what was charged. */
void account_uncharge(struct account *account, size_t bytes);
/* From old to new bytes. As account_charge(); less is never refused. */
int account_resize(struct account *account, size_t old, size_t new);
/* Everything that is charged to it is given back: its containers are gone. */
void account_clear(struct account *account);
/*
 * The limit for what is made of a file of which so many bytes were read: 64 MiB, and ratio times
 * the bytes, so that a small file made for it cannot fill the memory.
 */
uint64_t account_file_limit(uint64_t bytes, uint32_t ratio);
/*
 * Does an error say that something could not be kept, for want of memory or of the right to more of
 * it?
 */
int account_is_full(int err);

#endif
