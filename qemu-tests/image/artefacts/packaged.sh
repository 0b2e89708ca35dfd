# SPDX-License-Identifier: GPL-2.0-or-later
# shellcheck shell=bash
# The tree in which pcilend's Debian packages are tried: Debian as dpkg knows it, with DKMS and the
# modules, headers and source of a kernel installed. Not part of the lab.
title="Debian with DKMS, headers and source of $series"
needs=(base kernel@@)
inputs=(lib/tree.sh packages/packaged.txt)

build() {
	local -a debs binds=("$need_kernel/packages" /mnt)
	copy_tree "$need_base" "$out"
	# Nothing of a package is left out here.
	rm "$out/etc/dpkg/dpkg.cfg.d/lab"
	# Without the kernel's own modules, DKMS takes it for one that is not installed, and runs no depmod. In
	# 6.12 they are in the image.
	shopt -s nullglob
	cd "$need_kernel/packages"
	debs=(linux-{headers,kbuild,source,base,modules}-*.deb)
	[[ ${debs[*]} == *linux-modules-* ]] || debs+=(linux-image-*.deb)
	# shellcheck disable=SC2046
	install_packages "$out" $(packages packaged) "${debs[@]/#//mnt/}"
	cp "$need_kernel/release" "$out/release"
}
