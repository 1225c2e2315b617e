/* SPDX-License-Identifier: Apache-2.0 */
/* Against the paper's example. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "util/siphash.h"

static void papers_example(void **state)
{
	const struct siphash_key key = {{0x0706050403020100, 0x0f0e0d0c0b0a0908}};
	uint8_t bytes[16];

	(void)state;
	for (uint8_t i = 0; i < sizeof(bytes); i++)
		bytes[i] = i;
	assert_true(siphash(&key, bytes, 15) == 0xa129ca6149be45e5);
	assert_true(siphash(&key, bytes, 15) != siphash(&key, bytes, 16));
	assert_true(siphash(&key, bytes, 0) != siphash(&key, bytes, 1));
}

int main(void)
{
	const struct CMUnitTest tests[] = {cmocka_unit_test(papers_example)};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
