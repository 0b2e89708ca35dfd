// SPDX-License-Identifier: GPL-2.0-only
/*
 * pcilend_svm.ko: makes good, in a host's KVM, what its QEMU (11.1, SVM under TCG) does wrong.
 *
 * An interrupt that was injected is delivered once more, with interrupts off, if QEMU's CPU thread
 * is called away before anything else happens in the guest: helper_vmrun() leaves its vector in
 * exception_index. A Linux guest then waits for ever for a lock that it holds itself. An exit right
 * after the injection, as KVM itself forces at times, leaves another value there.
 *
 * EXITINTINFO tells the type of the last exception that the guest took, without its valid bit. KVM
 * since 6.14 looks at the type alone when it emulates an instruction, and ends the guest with
 * "internal error", suberror 3.
 *
 * A guest's write to CR8 while KVM waits for an interrupt window, which UEFI does at the end of
 * each interrupt, ends QEMU: "cpu_interrupt: assertion failed: (bql_locked())". KVM is to intercept
 * all writes.
 */

#include <linux/module.h>
#include <linux/smp.h>
#include <linux/tracepoint.h>

#include <asm/svm.h>
#include <trace/events/ipi.h>

#include "kvm_svm.h"

static struct vmcb_control_area *control_of(struct kvm_vcpu *vcpu)
{
	return &container_of(vcpu, struct vcpu_svm, vcpu)->vmcb->control;
}

/* Before VMRUN, with interrupts off. */
static void on_entry(void *data, struct kvm_vcpu *vcpu, bool force_immediate_exit)
{
	struct vmcb_control_area *control = control_of(vcpu);
	u32 event = control->event_inj & (SVM_EVTINJ_VALID | SVM_EVTINJ_TYPE_MASK);

	control->intercepts[INTERCEPT_CR] |= BIT(INTERCEPT_CR8_WRITE);
	if (event == (SVM_EVTINJ_VALID | SVM_EVTINJ_TYPE_INTR))
		smp_send_reschedule(smp_processor_id());
}

/* After #VMEXIT, before KVM looks at it. */
static void on_exit(void *data, struct kvm_vcpu *vcpu, u32 isa)
{
	struct vmcb_control_area *control = control_of(vcpu);

	if (!(control->exit_int_info & SVM_EXITINTINFO_VALID))
		control->exit_int_info = 0;
}

static int __init pcilend_svm_init(void)
{
	int err;

	err = tracepoint_probe_register(&__tracepoint_kvm_entry, on_entry, NULL);
	if (err)
		return err;
	err = tracepoint_probe_register(&__tracepoint_kvm_exit, on_exit, NULL);
	if (err)
		goto unregister_entry;
	return 0;

unregister_entry:
	tracepoint_probe_unregister(&__tracepoint_kvm_entry, on_entry, NULL);
	tracepoint_synchronize_unregister();
	return err;
}

static void __exit pcilend_svm_exit(void)
{
	tracepoint_probe_unregister(&__tracepoint_kvm_exit, on_exit, NULL);
	tracepoint_probe_unregister(&__tracepoint_kvm_entry, on_entry, NULL);
	tracepoint_synchronize_unregister();
}

module_init(pcilend_svm_init);
module_exit(pcilend_svm_exit);

MODULE_LICENSE("GPL");
MODULE_DESCRIPTION("Lets guests run on a host under QEMU's TCG");
