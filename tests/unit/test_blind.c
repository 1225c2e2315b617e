/* SPDX-License-Identifier: Apache-2.0 */
/* When nothing was seen, and why. */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "base/error.h"
#include "records.h"
#include "trace/blind.h"

static void test_judge(void **state)
{
	struct blind_facts facts = {
		.loss = {[LOSS_FREE] = 9, [LOSS_NO_THREAD] = 9, [LOSS_FRAME_FAULT] = 9}};

	(void)state;
	assert_int_equal(blind_judge(&facts), BLIND_NOT); /* of blocks that were there before */
	/* As on kernel 6.19, where the state is too large for the kernel's taste. */
	facts.loss[LOSS_THREAD_STATE] = 23405;
	assert_int_equal(blind_judge(&facts), BLIND_NO_STATE);
	facts.told.maps = 5; /* that is another layer, and needs no state */
	assert_int_equal(blind_judge(&facts), BLIND_NO_STATE);
	facts.loss[LOSS_ALLOC] = 30000;
	assert_int_equal(blind_judge(&facts), BLIND_NO_ROOM);
	facts.loss[LOSS_RETURN] = 40000;
	assert_int_equal(blind_judge(&facts), BLIND_NO_RETURN);
	facts.told.blocks = 1;
	assert_int_equal(blind_judge(&facts), BLIND_NOT);
}

static void test_maps(void **state)
{
	struct blind_facts facts = {.loss = {[LOSS_MAP] = 3}};

	(void)state;
	assert_int_equal(blind_judge(&facts), BLIND_NO_ROOM);
	facts.told.maps = 1;
	assert_int_equal(blind_judge(&facts), BLIND_NOT);
}

static void test_heap(void **state)
{
	struct blind_facts facts = {.heap_new = BLIND_HEAP_BLOCKS - 1};

	(void)state;
	assert_int_equal(blind_judge(&facts), BLIND_NOT);
	facts.heap_new++;
	assert_int_equal(blind_judge(&facts), BLIND_NO_PROBE);
	facts.told.blocks = 1;
	assert_int_equal(blind_judge(&facts), BLIND_NOT);
}

static void test_said(void **state)
{
	struct blind_facts facts = {.loss = {[LOSS_THREAD_STATE] = 23405}};
	const char *remedy = NULL;

	(void)state;
	assert_int_equal(blind_check(&facts, &remedy), -ENODATA);
	assert_non_null(strstr(error_reason(-ENODATA), "23405 requests were lost"));
	assert_non_null(strstr(remedy, "another kernel"));
	facts.loss[LOSS_THREAD_STATE] = 0;
	assert_int_equal(blind_check(&facts, &remedy), 0);
}

/* What the trace was fed with is what is judged. */
static void test_facts(void **state)
{
	struct event_loss loss = {.header = {.type = EVENT_LOSS, .size = sizeof(loss)},
				  .counts = {[LOSS_THREAD_STATE] = 7}};
	struct blind_facts facts;
	struct trace *trace;

	(void)state;
	assert_int_equal(trace_new(&trace, NULL), 0);
	assert_int_equal(feed_process(trace, 0x030d00f0), 0);
	assert_int_equal(trace_feed(trace, &loss, sizeof(loss)), 0);
	blind_facts_read(trace, &facts);
	assert_int_equal(blind_judge(&facts), BLIND_NO_STATE);
	assert_int_equal(feed_alloc(trace, 0x1000, 16, 0), 0);
	blind_facts_read(trace, &facts);
	assert_int_equal(facts.told.blocks, 1);
	assert_int_equal(blind_judge(&facts), BLIND_NOT);
	trace_free(trace);
}

int main(void)
{
	const struct CMUnitTest tests[] = {cmocka_unit_test(test_judge),
					   cmocka_unit_test(test_maps), cmocka_unit_test(test_heap),
					   cmocka_unit_test(test_said),
					   cmocka_unit_test(test_facts)};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
