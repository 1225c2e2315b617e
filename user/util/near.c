/* SPDX-License-Identifier: Apache-2.0 */
#include "util/near.h"

#include <ctype.h>
#include <string.h>

#include "util/sorted.h"

#define WORD_MAX 64u /* longer words are near to nothing */

static int differ(char a, char b)
{
	return tolower((unsigned char)a) != tolower((unsigned char)b);
}

/*
 * The optimal string alignment distance, by rows: rows[0][j] is that of a's first i characters and
 * b's first j; rows[1] and rows[2] are of one character less of a, and of two.
 */
static size_t distance(const char *a, size_t a_bytes, const char *b, size_t b_bytes)
{
	size_t rows[3][WORD_MAX + 1] = {{0}};

	for (size_t j = 0; j <= b_bytes; j++)
		rows[0][j] = j;
	for (size_t i = 1; i <= a_bytes; i++) {
		memcpy(rows[2], rows[1], sizeof(rows[2]));
		memcpy(rows[1], rows[0], sizeof(rows[1]));
		rows[0][0] = i;
		for (size_t j = 1; j <= b_bytes; j++) {
			size_t apart = lesser(rows[1][j], rows[0][j - 1]) + 1;

			apart = lesser(apart, rows[1][j - 1] + (size_t)differ(a[i - 1], b[j - 1]));
			if (i > 1 && j > 1 && !differ(a[i - 1], b[j - 2]) &&
			    !differ(a[i - 2], b[j - 1]))
				apart = lesser(apart, rows[2][j - 2] + 1);
			rows[0][j] = apart;
		}
	}
	return rows[0][b_bytes];
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
