# SPDX-License-Identifier: GPL-2.0-or-later
# The host VM's disk: packages, modules, our files, the nested guest; booted once, so that it is
# known to work and libvirt's cache of QEMU's capabilities is in it.
#   root.ext4
# shellcheck disable=SC2034,SC2154
title="disk of the host VM, kernel $series"
needs=(host-tree modules@@ guest kernel@@ initrd@@ qemu)
inputs=(host lib/cpio.sh lib/warm.sh)

build() {
	local tree=$out/tree name
	mkdir "$tree"
	copy_tree "$need_host_tree" "$tree"
	cp -a "$need_modules/lib/modules" "$tree/usr/lib/"
	(
		cd "$tree"
		install -D -m 755 "$image_dir/host/init" usr/lib/pcilend-lab/init
		install -m 644 "$image_dir/host"/{libvirtd,qemu}.conf etc/libvirt/
		mkdir -p etc/libvirt/hooks/qemu.d var/log/libvirt usr/share/pcilend-lab/guest
		cp "$need_guest"/{vmlinux,initrd} usr/share/pcilend-lab/guest/
		for name in poweroff reboot halt; do
			ln -sf ../bin/busybox "usr/sbin/$name"
		done
	)
	truncate -s 2G "$out/root.ext4"
	mke2fs -q -t ext4 -m 0 -O ^has_journal,^metadata_csum -E lazy_itable_init=1,root_owner=0:0 \
		-L pcilend-lab -d "$tree" "$out/root.ext4"
	rm -rf "$tree"
	mkdir "$out/scratch"
	warm_disk "$out/root.ext4" "$out/scratch"
	rm -rf "$out/scratch"
}
