/* SPDX-License-Identifier: Apache-2.0 */
/* Which of some words another one, mistyped, may mean. */
#pragma once

#include <stddef.h>

/* The best of the words that were offered so far. */
struct near {
	const char *word; /* as typed; borrowed */
	const char *best; /* borrowed from the caller of near_offer(); NULL: none is near */
	size_t distance;
};

/*
 * Offers a word. It is near if at most a third of its characters differ (Levenshtein's distance, in
 * which two exchanged characters are one difference), or if the word that was typed is a part of at
 * least three characters of it. Case is ignored.
 */
void near_offer(struct near *near, const char *word);
