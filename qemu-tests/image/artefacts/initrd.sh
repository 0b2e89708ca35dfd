# SPDX-License-Identifier: GPL-2.0-or-later
# shellcheck shell=bash
# The host VM's initramfs: busybox and the modules that reach the root file system; uncompressed,
# so that more cpio archives can be appended.
title="initramfs of the host VM, kernel $series"
needs=(host-tree modules@@ kernel@@)
inputs=(lib/cpio.sh lib/modules.sh initramfs)

build() {
	local root=$out/root release
	release=$(<"$need_kernel/release")
	mkdir -p "$root"/{bin,dev,proc,sys,root,modules}
	cp "$need_host_tree/usr/bin/busybox" "$root/bin/"
	install -m 755 "$image_dir/initramfs/init" "$root/init"
	local from=$need_modules/lib/modules/$release path
	module_closure "$from/modules.dep" "$image_dir/initramfs/modules.txt" | while IFS= read -r path; do
		cp "$from/$path" "$root/modules/"
		printf '/modules/%s\n' "${path##*/}"
	done >"$root/modules/order"
	make_cpio "$need_host_tree/usr/bin/busybox" "$root" >"$out/initrd"
	rm -rf "$root"
}
