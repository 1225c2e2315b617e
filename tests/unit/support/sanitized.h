/* SPDX-License-Identifier: Apache-2.0 */
/* SANITIZED: ASan delays frees, so that the memory in use cannot be tested. */
#pragma once

#if defined(__SANITIZE_ADDRESS__)
#define SANITIZED 1
#elif defined(__has_feature)
#define SANITIZED __has_feature(address_sanitizer)
#else
#define SANITIZED 0
#endif
