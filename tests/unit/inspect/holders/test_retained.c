/* SPDX-License-Identifier: Apache-2.0 */
/* Retained sizes of random graphs, against the definition. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

#include <cmocka.h>

#include "inspect/holders/retained.h"
#include "random_graph.h"

#define GRAPHS 3000
#define MANY   5000u

struct sized_graph {
	struct random_graph random;
	uint32_t bytes[NODES], type_of[NODES];
	struct graph graph;
};

static void sized_make(struct sized_graph *sized)
{
	struct random_graph *random = &sized->random;

	graph_make(random);
	for (uint32_t i = 0; i < random->count; i++) {
		sized->bytes[i] = 1 + below(4); /* some are equal */
		sized->type_of[i] = GRAPH_NONE;
	}
	sized->graph = (struct graph){.count = random->count,
				      .bytes = sized->bytes,
				      .type_of = sized->type_of,
				      .root = random->root,
				      .out_start = random->out_start,
				      .out = random->out,
				      .in_start = random->in_start,
				      .in = random->in};
}

/* What is cut off when one of the matched objects is removed; each counts once. */
static struct retained_sum together(const struct sized_graph *sized, const uint8_t *matched)
{
	uint8_t all[NODES], without[NODES], inside[NODES] = {0};
	struct retained_sum sum = {0};

	reach(&sized->random, NODES, all);
	for (uint32_t i = 0; i < sized->random.count; i++) {
		if (!matched[i] || !all[i])
			continue;
		reach(&sized->random, i, without);
		for (uint32_t j = 0; j < sized->random.count; j++)
			inside[j] |= all[j] && !without[j];
	}
	for (uint32_t i = 0; i < sized->random.count; i++)
		if (inside[i]) {
			sum.bytes += graph_bytes(&sized->graph, i);
			sum.count++;
		}
	return sum;
}

static void test_together(void **unused)
{
	struct sized_graph sized;
	struct retained *retained;

	(void)unused;
	for (uint32_t i = 0; i < GRAPHS; i++) {
		uint8_t matched[NODES];
		struct retained_sum sum;

		sized_make(&sized);
		assert_int_equal(retained_new(&retained, &sized.graph), 0);
		for (uint32_t of = 1; of < 5; of++) {
			for (uint32_t j = 0; j < NODES; j++)
				matched[j] = !below(of);
			struct retained_sum right = together(&sized, matched);
			assert_int_equal(retained_together(retained, matched, &sum), 0);
			assert_int_equal(sum.bytes, right.bytes);
			assert_int_equal(sum.count, right.count);
		}
		retained_free(retained);
	}
}

static uint64_t many_bytes[MANY];

static int largest_first(const void *a, const void *b)
{
	uint32_t x = *(const uint32_t *)a, y = *(const uint32_t *)b;

	if (many_bytes[x] != many_bytes[y])
		return many_bytes[x] > many_bytes[y] ? -1 : 1;
	return x < y ? -1 : x > y;
}

/* Those that are wanted, of many more: the order is that of all. */
static void test_largest(void **unused)
{
	const size_t most[] = {0, 1, 2, 3, 100, MANY / 2, MANY - 1, MANY, 2 * MANY};
	const struct graph graph = {.count = MANY};
	const struct retained retained = {.graph = &graph, .bytes = many_bytes};
	uint8_t matched[MANY];
	uint32_t order[MANY];

	(void)unused;
	for (uint32_t turn = 0; turn < 12; turn++) {
		uint32_t there = 0;

		for (uint32_t i = 0; i < MANY; i++) {
			/* also ascending and descending */
			many_bytes[i] = turn % 3 ? below(turn < 6 ? 20 : 1000000) + i * (turn % 2)
						 : MANY - i;
			matched[i] = turn % 4 || !below(3);
			if (matched[i])
				order[there++] = i;
		}
		qsort(order, there, sizeof(*order), largest_first);
		for (size_t i = 0; i < sizeof(most) / sizeof(most[0]); i++) {
			size_t count, right = most[i] < there ? most[i] : there;
			uint32_t *found = retained_largest(&retained, there < MANY ? matched : NULL,
							   most[i], &count);

			assert_non_null(found);
			assert_int_equal(count, right);
			assert_memory_equal(found, order, right * sizeof(*found));
			free(found);
		}
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_together),
		cmocka_unit_test(test_largest),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
