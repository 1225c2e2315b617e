/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The subcommands, one file each. A command gets its own argc and argv (argv[0] is its name),
 * prints results on stdout and everything else on stderr, and returns the exit status
 * (cmd/options/options.h). When a command is traced, that command's own status is returned.
 */
#pragma once

int cli_trace(int argc, char **argv);
/* The same for one that watches until it is told to end: that nothing has matched is no error. */
int cli_watch(int argc, char **argv);
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
int cli_agent(int argc, char **argv);
int cli_fleet(int argc, char **argv);
int cli_serve(int argc, char **argv);

/* The version, the commit that it was built from if that is known, and those of libraries. */
void cli_version_print(void);
