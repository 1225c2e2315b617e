/* SPDX-License-Identifier: Apache-2.0 */
#include "text/near.h"

#include <ctype.h>
#include <string.h>

#define WORD_MAX 64u /* longer words are near to nothing */

static int differ(char a, char b)
{
	return tolower((unsigned char)a) != tolower((unsigned char)b);
}

static size_t least(size_t a, size_t b)
{
	return a < b ? a : b;
}

/* Levenshtein's distance, by rows: row[j] is that of a's first i characters and b's first j. */
static size_t distance(const char *a, size_t a_bytes, const char *b, size_t b_bytes)
{
	size_t row[WORD_MAX + 1];

	for (size_t j = 0; j <= b_bytes; j++)
		row[j] = j;
	for (size_t i = 1; i <= a_bytes; i++) {
		size_t diagonal = row[0];

		row[0] = i;
		for (size_t j = 1; j <= b_bytes; j++) {
			size_t above = row[j];

			row[j] = least(least(above, row[j - 1]) + 1,
				       diagonal + (size_t)differ(a[i - 1], b[j - 1]));
			diagonal = above;
		}
	}
	return row[b_bytes];
}

void near_offer(struct near *near, const char *word)
{
	size_t typed = strlen(near->word), bytes = strlen(word), apart;

	if (!typed || typed > WORD_MAX || bytes > WORD_MAX)
		return;
	apart = distance(near->word, typed, word, bytes);
	if (3 * apart > bytes && (typed < 3 || !strcasestr(word, near->word)))
		return;
	if (near->best && near->distance <= apart)
		return;
	near->best = word;
	near->distance = apart;
}
