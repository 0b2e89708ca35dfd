# SPDX-License-Identifier: GPL-2.0-or-later
# shellcheck shell=bash
# The upstream NTB modules, unmodified, which Debian's kernels leave out; switchtec.ko is what
# ntb_hw_switchtec.ko stands on.
#   *.ko, Module.symvers
title="NTB modules of $series"
needs=(kbuild@@ kernel@@)
inputs=(lib/tree.sh lib/kbuild.sh)

build() {
	local work=$out/work
	cp -a "$need_kernel/source/drivers" "$work"
	printf 'obj-m := ntb/ pci/switch/\n' >"$work/Kbuild"
	kbuild_make "$need_kbuild" "$work" "$work" \
		CONFIG_NTB=m CONFIG_NTB_MSI=y CONFIG_NTB_AMD=m CONFIG_NTB_EPF=m CONFIG_NTB_IDT=m \
		CONFIG_NTB_INTEL=m CONFIG_NTB_SWITCHTEC=m CONFIG_NTB_TOOL=m CONFIG_NTB_PERF=m \
		CONFIG_PCI_SW_SWITCHTEC=m
	find "$work" -name '*.ko' -exec cp -t "$out" {} +
	strip_modules "$need_kbuild" "$out"
	cp "$work/Module.symvers" "$out/"
	rm -rf "$work"
}
