/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What a service manager wants to know (sd_notify(3)): the agent is ready, lives, ends. Its
 * protocol is one datagram of text; a service that nobody manages sends nothing.
 */
#pragma once

#include <stdint.h>

/* "READY=1", "WATCHDOG=1", "RELOADING=1", "STOPPING=1", "STATUS=…". Failures are ignored. */
void service_notify(const char *state);
/* How often WATCHDOG=1 is expected, half of the manager's limit; 0: never. */
uint64_t service_watchdog_ns(void);
