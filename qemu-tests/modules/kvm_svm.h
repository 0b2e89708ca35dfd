/* SPDX-License-Identifier: GPL-2.0-only */
/* Of KVM's own, what the lab needs and a kernel's headers leave out. The same in 6.12 and 7.2. */
#ifndef PCILEND_LAB_KVM_SVM_H
#define PCILEND_LAB_KVM_SVM_H

#include <linux/kvm_host.h>
#include <linux/tracepoint-defs.h>

struct vmcb;

/* arch/x86/kvm/svm/svm.h: its beginning. */
struct vcpu_svm {
	struct kvm_vcpu vcpu;
	struct vmcb *vmcb;
};

/*
 * arch/x86/kvm/trace.h: probe(void *data, struct kvm_vcpu *vcpu, bool force_immediate_exit) and
 * probe(void *data, struct kvm_vcpu *vcpu, u32 isa).
 */
extern struct tracepoint __tracepoint_kvm_entry;
extern struct tracepoint __tracepoint_kvm_exit;

#endif
