// SPDX-License-Identifier: GPL-2.0-only OR MIT
/*
 * Prints the size in bytes of this machine's floating point state, as the
 * kernel exchanges it through ptrace(NT_X86_XSTATE): CPUID leaf 0Dh for the
 * components that are switched on. User Mode Linux 6.1 assumes 2696, which is
 * too little where the processor has AMX.
 */
#include <cpuid.h>
#include <stdio.h>

int main(void)
{
	unsigned int eax, ebx = 0, ecx, edx;

	if (!__get_cpuid_count(0xd, 0, &eax, &ebx, &ecx, &edx) || !ebx)
		return 1;
	printf("%u\n", ebx);
	return 0;
}
