/* SPDX-License-Identifier: Apache-2.0 */
/* Which files tracer has written, by their contents: they may be replaced without being asked. */
#ifndef TRACER_BASE_OUTFILE_OWN_H
#define TRACER_BASE_OUTFILE_OWN_H

/* 1: the file is empty, or begins as one of the formats that are written here. fd is readable. */
int outfile_is_own(int fd);

#endif
