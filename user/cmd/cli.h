/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The subcommands, one file each. A command gets its own argc and argv (argv[0] is its name),
 * prints results on stdout and everything else on stderr, and returns the exit status: 0 done, 1 it
 * failed while running, 2 wrong usage. When a command is traced, that command's own status is
 * returned.
 */
#pragma once

int cli_trace(int argc, char **argv);
int cli_report(int argc, char **argv);
int cli_diff(int argc, char **argv);
int cli_filter(int argc, char **argv);
int cli_export(int argc, char **argv);
int cli_replay(int argc, char **argv);
int cli_list(int argc, char **argv);
int cli_heap(int argc, char **argv);
int cli_memory(int argc, char **argv);
int cli_perfmap(int argc, char **argv);
int cli_leaks(int argc, char **argv);
int cli_timeline(int argc, char **argv);
int cli_ctl(int argc, char **argv);
int cli_doctor(int argc, char **argv);
