# SPDX-License-Identifier: GPL-2.0-or-later
# shellcheck shell=bash
# The nested guest: an uncompressed kernel, the same as UEFI takes it, and an initramfs with stock
# drivers, uncompressed, so that more cpio archives (the agent) can be appended.
#   vmlinux vmlinuz initrd
title="kernel and initramfs of the nested guest"
needs=(host-tree kernel@6.12 modules@6.12)
inputs=(lib/cpio.sh lib/modules.sh lib/tree.sh lib/kbuild.sh guest)

build() {
	local root=$out/root release from to path
	release=$(<"$need_kernel/release")
	from=$need_modules/lib/modules/$release
	to=$root/lib/modules/$release
	mkdir -p "$root"/{bin,dev,etc,mnt,proc,root,run,sbin,sys,tmp} "$to"
	install -m 755 "$image_dir/guest/init" "$root/init"
	install -m 644 "$image_dir/guest/mdev.conf" "$root/etc/mdev.conf"
	install -D -m 755 "$image_dir/guest/power-button" "$root/etc/acpi/PWRF/00000080"
	echo ext4 >"$root/etc/filesystems"
	cp "$need_host_tree/usr/bin/busybox" "$root/bin/"
	for path in $("$root/bin/busybox" --list); do
		ln -s busybox "$root/bin/$path" 2>/dev/null || true
	done
	ln -s ../bin/busybox "$root/sbin/modprobe"

	module_closure "$from/modules.dep" "$image_dir/guest/modules.txt" | copy_listed "$from" "$to"
	cp "$from"/modules.{order,builtin,builtin.modinfo} "$to/"
	compress_cold "$to"
	run_depmod "$need_host_tree" "$root" "$release"
	rm -f "$to"/*.bin "$to"/modules.{symbols,order,builtin*,devname,weakdep}
	make_cpio "$need_host_tree/usr/bin/busybox" "$root" >"$out/initrd"
	rm -rf "$root"
	cp "$need_kernel/vmlinux" "$out/vmlinux"
	cp "$need_kernel/image/boot/vmlinuz-$release" "$out/vmlinuz"
}

compress_cold() { # MODULES-DIR
	local plain
	plain=$(module_closure "$from/modules.dep" <(awk '$2 == "plain" { print $1 }' "$image_dir/guest/modules.txt"))
	(
		cd "$1"
		find kernel -name '*.ko' | grep -vxFf <(printf '%s\n' "$plain") |
			xargs xz --check=crc32 --lzma2=dict=1MiB
	)
}
