/* SPDX-License-Identifier: Apache-2.0 */
/* Constants of the machine that the tracer is built for, and of its ABI. */
#pragma once

#include <elf.h>
#include <linux/audit.h>

#ifdef __aarch64__

#define ARCH_NAME     "arm64"
#define ARCH_UNAME    "aarch64"
#define ARCH_ELF      EM_AARCH64
#define ARCH_AUDIT    AUDIT_ARCH_AARCH64
#define ARCH_RELATIVE R_AARCH64_RELATIVE
#define ARCH_SLOT     R_AARCH64_JUMP_SLOT
#define ARCH_ADDRESS  R_AARCH64_GLOB_DAT
#define ARCH_MODULE   R_AARCH64_TLS_DTPMOD

#else

#define ARCH_NAME     "x86-64"
#define ARCH_UNAME    "x86_64"
#define ARCH_ELF      EM_X86_64
#define ARCH_AUDIT    AUDIT_ARCH_X86_64
#define ARCH_RELATIVE R_X86_64_RELATIVE
#define ARCH_SLOT     R_X86_64_JUMP_SLOT
#define ARCH_ADDRESS  R_X86_64_GLOB_DAT
#define ARCH_MODULE   R_X86_64_DTPMOD64

#endif
