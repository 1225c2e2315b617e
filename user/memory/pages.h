/* SPDX-License-Identifier: Apache-2.0 */
/* Private to the room: the resident pages of the maps of an account, from pagemap. */
#ifndef TRACER_MEMORY_PAGES_H
#define TRACER_MEMORY_PAGES_H

#include "memory/account.h"

/*
 * Sets the pages of the anonymous maps. *unknown gets the resident bytes of those that are too
 * large. kpageflags: -1 if it is not to be had. 0; -ESRCH; -ENOMEM; -errno.
 */
int memory_pages_read(int pagemap, int kpageflags, struct memory_account *account,
		      uint64_t *unknown);

#endif
