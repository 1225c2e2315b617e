/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Strongly connected components of random graphs, against the definition: what reaches each other.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "inspect/waste/cycles.h"
#include "random_below.h"

#define GRAPHS 12000
#define NODES  20
#define EDGES  40
#define DEEP   300000

/* reaches[i] has bit j if there is a way from i to j. */
static void graph_make(uint32_t count, uint32_t start[NODES + 1], uint32_t out[EDGES],
		       uint32_t reaches[NODES])
{
	uint32_t edges = 0;

	for (uint32_t i = 0; i < count; i++) {
		start[i] = edges;
		reaches[i] = 1u << i;
		for (uint32_t more = below(3); more > 0 && edges < EDGES; more--) {
			out[edges] = below(count);
			reaches[i] |= 1u << out[edges++];
		}
	}
	start[count] = edges;
	for (uint32_t through = 0; through < count; through++)
		for (uint32_t i = 0; i < count; i++)
			if (reaches[i] >> through & 1)
				reaches[i] |= reaches[through];
}

static void test_random(void **unused)
{
	uint32_t start[NODES + 1], out[EDGES], reaches[NODES], part[NODES], parts, cycles = 0;

	(void)unused;
	for (int i = 0; i < GRAPHS; i++) {
		uint32_t count = 1 + below(NODES), seen = 0;

		graph_make(count, start, out, reaches);
		assert_int_equal(components_find(start, out, count, part, &parts), 0);
		for (uint32_t a = 0; a < count; a++) {
			assert_true(part[a] < parts);
			seen |= 1u << part[a];
			for (uint32_t b = 0; b < count; b++) {
				int both = (reaches[a] >> b & 1) && (reaches[b] >> a & 1);

				assert_int_equal(part[a] == part[b], both);
				cycles += both && a != b;
			}
		}
		assert_int_equal(seen, (1u << parts) - 1);
	}
	assert_true(cycles > GRAPHS);
}

/* One long ring: a search that called itself would run out of stack. */
static void test_deep(void **unused)
{
	uint32_t *start = malloc((DEEP + 1) * sizeof(*start)), *out = malloc(DEEP * sizeof(*out));
	uint32_t *part = malloc(DEEP * sizeof(*part)), parts;

	(void)unused;
	assert_non_null(start);
	assert_non_null(out);
	assert_non_null(part);
	for (uint32_t i = 0; i < DEEP; i++) {
		start[i] = i;
		out[i] = (i + 1) % DEEP;
	}
	start[DEEP] = DEEP;
	assert_int_equal(components_find(start, out, DEEP, part, &parts), 0);
	assert_int_equal(parts, 1);
	free(start);
	free(out);
	free(part);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_random),
		cmocka_unit_test(test_deep),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
