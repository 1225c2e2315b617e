/* SPDX-License-Identifier: Apache-2.0 */
/*
 * File name patterns as tracemalloc.Filter matches them: fnmatch.fnmatch() on POSIX
 * (case-sensitive, '*' matches '/'), by code points, with a final ".pyc" of either side taken as
 * ".py". Where Python versions differ, the newest is followed: a reversed range is empty, while 3.8
 * to 3.10 raise re.error. Source: Lib/fnmatch.py, Lib/tracemalloc.py (3.13).
 */
#pragma once

struct pattern;

int pattern_new(struct pattern **out, const char *text); /* 0, -ENOMEM; pattern_free() releases */
void pattern_free(struct pattern *pattern);              /* NULL is legal */
/* 1 when the name as a whole matches, 0, -ENOMEM. */
int pattern_match(const struct pattern *pattern, const char *name);
