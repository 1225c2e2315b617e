/* SPDX-License-Identifier: Apache-2.0 */
/*
 * cmocka 2's name for assert_in_range(), which cmocka 2 deprecates. cmocka 1 has only
 * assert_in_range(). Use it, and include this file after cmocka.h.
 */
#pragma once

#ifndef assert_uint_in_range
#define assert_uint_in_range assert_in_range
#endif
