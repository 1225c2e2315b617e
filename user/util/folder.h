/* SPDX-License-Identifier: Apache-2.0 */
/* A folder for what other users must not read or replace. */
#pragma once

/*
 * Opens the folder for reading, and makes it if need be (mode 0700); its last name is not followed.
 * A descriptor; -ENOTDIR; -EPERM it is another user's, or others can write to it; -errno
 * (error_set).
 */
int folder_open(const char *path);
/*
 * The same, for one process at a time: also -EBUSY, another agent uses it. The lock goes with the
 * last descriptor, also those of children.
 */
int folder_take(const char *path);
/* Whether root could: nothing is made. 0; errors as above. */
int folder_check(const char *path);
