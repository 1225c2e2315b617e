/* SPDX-License-Identifier: Apache-2.0 */
#include "stats/owner.h"

#include <string.h>

#include "base/hash.h"

/* The name of an owner, used besides the PID. */
static const char *owner_name(const struct snapshot_meta *process, enum group_by by)
{
	return by == GROUP_CONTAINER ? process->container : process->name;
}

uint64_t owner_hash(const struct snapshot_meta *process, enum group_by by, uint64_t seed)
{
	uint64_t hash = hash_u64(seed ^ (by == GROUP_PROCESS ? process->pid : 0));

	for (const char *at = owner_name(process, by); *at; at++)
		hash = hash_u64(hash * 31 + (unsigned char)*at);
	return hash;
}

int owner_compare(const struct snapshot_meta *a, const struct snapshot_meta *b, enum group_by by)
{
	if (by == GROUP_PROCESS && a->pid != b->pid)
		return a->pid < b->pid ? -1 : 1;
	return strcmp(owner_name(a, by), owner_name(b, by));
}
