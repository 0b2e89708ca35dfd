# SPDX-License-Identifier: GPL-2.0-or-later
# shellcheck shell=bash
# The host VM's disk: packages, modules, our files, the nested guest; booted once, so that it is
# known to work and libvirt's cache of QEMU's capabilities is in it.
#   root.ext4
title="disk of the host VM, kernel $series"
needs=(host-tree modules@@ guest kernel@@ initrd@@ qemu)
inputs=(host lib/tree.sh lib/cpio.sh lib/warm.sh)

build() {
	local tree=$out/tree name
	mkdir "$tree"
	copy_tree "$need_host_tree" "$tree"
	cp -a "$need_modules/lib/modules" "$tree/usr/lib/"
	(
		cd "$tree"
		install -D -m 755 -t usr/lib/pcilend-lab "$image_dir/host"/{init,libvirt}
		install -D -m 755 "$image_dir/host/virsh" usr/local/bin/virsh
		install -m 644 "$image_dir/host"/{libvirtd,qemu}.conf etc/libvirt/
		install -m 644 "$image_dir/host/modprobe.conf" etc/modprobe.d/lab.conf
		# libvirtd would ask it for its capabilities in each boot, which takes seconds.
		rm usr/bin/qemu-system-i386
		mkdir -p etc/libvirt/hooks/qemu.d var/log/libvirt usr/share/pcilend-lab/guest
		cp "$need_guest"/{vmlinux,vmlinuz,initrd} usr/share/pcilend-lab/guest/
		for name in poweroff reboot halt; do
			ln -sf ../bin/busybox "usr/sbin/$name"
		done
	)
	# With e2fsprogs of the tree: what a host's make by default differs. The journal is for power
	# cuts: a host's disk outlives them.
	local -a binds=("$out" /mnt)
	truncate -s 2G "$out/root.ext4"
	in_tree "$need_host_tree" mke2fs -q -t ext4 -m 0 -O ^metadata_csum,^orphan_file \
		-J size=16 -E lazy_itable_init=1,root_owner=0:0 -L pcilend-lab -d /mnt/tree /mnt/root.ext4
	rm -rf "$tree"
	mkdir "$out/scratch"
	warm_disk "$out/root.ext4" "$out/scratch" "$image_dir/host/first-boot" 300
	# Files that were open when they were removed are still to be freed: status 1.
	in_tree "$need_host_tree" e2fsck -fp /mnt/root.ext4 || (($? == 1))
	rm -rf "$out/scratch"
}
