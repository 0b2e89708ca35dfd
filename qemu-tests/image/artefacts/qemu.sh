# SPDX-License-Identifier: GPL-2.0-or-later
# shellcheck shell=bash
# QEMU with the vfio-user client (>= 10.1), in a tree; run from outside by qemu/wrapper.
title='QEMU of trixie-backports'
needs=(base)
inputs=(lib/tree.sh packages/qemu.txt qemu)

build() {
	copy_tree "$need_base" "$out"
	# shellcheck disable=SC2046
	install_packages "$out" -t trixie-backports $(packages qemu)
	rm -rf "$out"/var/lib/apt/lists/* "$out"/var/cache/apt/*.bin
	install -m 755 "$image_dir/qemu/wrapper" "$out/qemu-system-x86_64"
	install -m 755 "$image_dir/qemu/wrapper" "$out/qemu-img"
	"$out/qemu-system-x86_64" -device vfio-user-pci,help >/dev/null
}
