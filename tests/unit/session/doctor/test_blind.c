/* SPDX-License-Identifier: Apache-2.0 */
/* Traces that have seen nothing, and the reason. */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "records.h"
#include "session/doctor/blind.h"
#include "util/error.h"

static void test_judge(void **state)
{
	struct blind_facts facts = {
		.loss = {[LOSS_FREE] = 9, [LOSS_NO_THREAD] = 9, [LOSS_FRAME_FAULT] = 9}};

	(void)state;
	assert_int_equal(blind_judge(&facts), BLIND_NOT); /* of blocks older than the trace */
	/* As on kernel 6.19, which rejects the state as too large. */
	facts.loss[LOSS_THREAD_STATE] = 23405;
	assert_int_equal(blind_judge(&facts), BLIND_NO_STATE);
	facts.observed.maps = 5; /* another layer, which needs no state */
	assert_int_equal(blind_judge(&facts), BLIND_NO_STATE);
	facts.loss[LOSS_ALLOC] = 30000;
	assert_int_equal(blind_judge(&facts), BLIND_BUFFER_FULL);
	facts.loss[LOSS_RETURN] = 40000;
	assert_int_equal(blind_judge(&facts), BLIND_NO_RETURN);
	facts.observed.blocks = 1;
	assert_int_equal(blind_judge(&facts), BLIND_NOT);
}

static void test_maps(void **state)
{
	struct blind_facts facts = {.loss = {[LOSS_MAP] = 3}};

	(void)state;
	assert_int_equal(blind_judge(&facts), BLIND_BUFFER_FULL);
	facts.observed.maps = 1;
	assert_int_equal(blind_judge(&facts), BLIND_NOT);
}

static void test_heap(void **state)
{
	struct blind_facts facts = {.heap_new = BLIND_HEAP_BLOCKS - 1};

	(void)state;
	assert_int_equal(blind_judge(&facts), BLIND_NOT);
	facts.heap_new++;
	assert_int_equal(blind_judge(&facts), BLIND_NO_PROBE);
	facts.observed.blocks = 1;
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

/* The judgement uses what was fed into the trace. */
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
	assert_int_equal(facts.observed.blocks, 1);
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
