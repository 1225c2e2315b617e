/* SPDX-License-Identifier: Apache-2.0 */
/* SANITIZED: ASan delays frees, so that the memory in use cannot be tested. */
#ifndef TRACER_TESTS_SANITIZED_H
#define TRACER_TESTS_SANITIZED_H

#if defined(__SANITIZE_ADDRESS__)
#define SANITIZED 1
#elif defined(__has_feature)
#define SANITIZED __has_feature(address_sanitizer)
#else
#define SANITIZED 0
#endif

#endif
