/* SPDX-License-Identifier: Apache-2.0 */
/*
 * cmocka 2's name for what cmocka 1 calls assert_in_range(), and which 2 warns of under that name.
 * After cmocka.h.
 */
#ifndef TRACER_TESTS_RANGES_H
#define TRACER_TESTS_RANGES_H

#ifndef assert_uint_in_range
#define assert_uint_in_range assert_in_range
#endif

#endif
