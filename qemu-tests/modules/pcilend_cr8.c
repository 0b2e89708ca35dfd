// SPDX-License-Identifier: GPL-2.0-only
/*
 * pcilend_cr8.ko: while it is loaded, KVM intercepts all writes of guests to CR8.
 *
 * A host's QEMU (11.1, SVM under TCG) ends with "cpu_interrupt: assertion failed: (bql_locked())"
 * if a guest writes CR8 while KVM waits for it to take an interrupt, and KVM does not intercept the
 * write. UEFI writes it at the end of each interrupt.
 */

#include <linux/kprobes.h>
#include <linux/module.h>

/* svm_update_cr8_intercept(vcpu, tpr, irr) intercepts if tpr >= irr, and irr is not -1. */
static int intercept(struct kprobe *probe, struct pt_regs *regs)
{
	regs->si = 0;
	regs->dx = 0;
	return 0;
}

static struct kprobe probe = {
	.symbol_name = "svm_update_cr8_intercept",
	.pre_handler = intercept,
};

static int __init pcilend_cr8_init(void)
{
	return register_kprobe(&probe);
}

static void __exit pcilend_cr8_exit(void)
{
	unregister_kprobe(&probe);
}

module_init(pcilend_cr8_init);
module_exit(pcilend_cr8_exit);

MODULE_LICENSE("GPL");
MODULE_DESCRIPTION("Lets guests with UEFI run on a host under QEMU's TCG");
