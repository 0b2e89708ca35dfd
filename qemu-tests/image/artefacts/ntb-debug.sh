# SPDX-License-Identifier: GPL-2.0-or-later
# shellcheck shell=bash
# The upstream NTB modules that host VMs use, with the debug kernel's checks; unmodified but for two
# lines, as lockdep switches itself off when it sees a lock that nobody has initialised. AMD's link may
# be up before ntb_register_device() initialises the lock that ntb_link_event() takes; Switchtec's lock
# of the doorbells' mask is never initialised (docs/upstream/ntb-switchtec-lock.md).
#   *.ko, Module.symvers
title="NTB modules of $series"
needs=(kbuild@@ kernel@@)
inputs=(lib/tree.sh lib/kbuild.sh)

build() {
	local work=$out/work
	cp -a "$need_kernel/source/drivers" "$work"
	sed -i 's/^\tspin_lock_init(&ndev->db_mask_lock);$/&\n\tspin_lock_init(\&ndev->ntb.ctx_lock);/' \
		"$work/ntb/hw/amd/ntb_hw_amd.c"
	grep -q 'spin_lock_init(&ndev->ntb.ctx_lock)' "$work/ntb/hw/amd/ntb_hw_amd.c"
	sed -i 's/^\tsndev->db_mask = 0x0FFFFFFFFFFFFFFFULL;$/&\n\tspin_lock_init(\&sndev->db_mask_lock);/' \
		"$work/ntb/hw/mscc/ntb_hw_switchtec.c"
	grep -q 'spin_lock_init(&sndev->db_mask_lock)' "$work/ntb/hw/mscc/ntb_hw_switchtec.c"
	printf 'obj-m := pci/switch/ ntb/\n' >"$work/Kbuild"
	kbuild_make "$need_kbuild" "$work" "$work" \
		CONFIG_NTB=m CONFIG_NTB_MSI=y CONFIG_NTB_AMD=m \
		CONFIG_PCI_SW_SWITCHTEC=m CONFIG_NTB_SWITCHTEC=m \
		CONFIG_NTB_PERF=m CONFIG_NTB_PINGPONG=m CONFIG_NTB_TRANSPORT=m
	find "$work" -name '*.ko' -exec cp -t "$out" {} +
	strip_modules "$need_kbuild" "$out"
	cp "$work/Module.symvers" "$out/"
	rm -rf "$work"
}
