/* SPDX-License-Identifier: Apache-2.0 */
/* 70 MiB of code around a function that the tracer takes for an allocator's. Waits for its end. */
#include <unistd.h>

__asm__(".text\n"
	"mallocx: .skip 70 << 20, 0x90\n"
	"mov %edi, %edi\n"
	"ret\n"
	".type mallocx, @function\n"
	".size mallocx, . - mallocx\n");

int main(void)
{
	char byte;

	return read(0, &byte, 1) < 0;
}
