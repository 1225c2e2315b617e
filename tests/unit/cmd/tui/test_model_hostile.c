/* SPDX-License-Identifier: Apache-2.0 */
/* Answers that no session writes. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <errno.h>
#include <math.h>

#include "watch_world.h"

/* A session may have as many stacks as WATCH_STACKS; here that would only take time. */
static void stacks_bound(struct buffer *data)
{
	struct sums_process *process = (void *)(data->data + sizeof(struct sums_header));

	if (process->stacks <= WATCH_STACKS && process->stacks > 1000)
		process->stacks = 1000;
}

/* Nothing that is cut or changed is believed beyond its bounds. */
static void hostile_answers(void **state)
{
	struct world *world = *state;
	struct buffer good = {0}, bad = {0};
	uint32_t seed = 1;

	/* sizes that a bar of the sparkline could not be computed from */
	for (int i = 0; i < 4; i++) {
		const double wrong[] = {-1, 1e300, INFINITY, NAN};
		const size_t at = sizeof(struct sums_header) + sizeof(struct sums_process) +
				  offsetof(struct sums_entry, size);

		sums_put(&good, 9 * SECOND, 10, (double[STACKS]){1, 2, 3, 4}, (double[STACKS]){0});
		memcpy(good.data + at, &wrong[i], sizeof(wrong[i]));
		assert_int_equal(watch_model_sums(&world->model, good.data, good.size), -EBADMSG);
	}
	for (int kind = 0; kind < 3; kind++) {
		int stacks = kind == 1;

		good.size = 0;
		if (kind == 2)
			press(world, '7');
		if (stacks)
			stacks_put(&good, 10, "a.py");
		else if (kind == 2)
			threads_put(&good, 9 * SECOND, 1);
		else
			sums_put(&good, 9 * SECOND, 10, (double[STACKS]){1, 2, 3, 4},
				 (double[STACKS]){0});
		for (size_t bytes = 0; bytes < good.size; bytes++) {
			void *cut = malloc(bytes);

			memcpy(cut, good.data, bytes);
			int err = stacks ? watch_model_stacks(&world->model, cut, bytes)
					 : watch_model_sums(&world->model, cut, bytes);
			/* strings that are known already are not read again */
			assert_true(err == -EBADMSG || (stacks && !err));
			free(cut);
		}
		for (int i = 0; i < 2000; i++) {
			bad.size = 0;
			put(&bad, good.data, good.size);
			for (int j = 0; j < 3; j++) {
				seed = seed * 1103515245 + 12345;
				bad.data[seed / 65536 % bad.size] = (unsigned char)(seed >> 8);
			}
			if (!stacks)
				stacks_bound(&bad);
			if (stacks)
				watch_model_stacks(&world->model, bad.data, bad.size);
			else
				watch_model_sums(&world->model, bad.data, bad.size);
			if (i % 100 == 0)
				assert_true(watch_groups_rows(&world->view.groups, &world->model, 8,
							      world->rows) >= 0);
		}
	}
	buffer_free(&good);
	buffer_free(&bad);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		TEST(hostile_answers),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
