# SPDX-License-Identifier: GPL-2.0-or-later
# shellcheck shell=bash
# The tree in which pcilend's Debian packages are tried: Debian as dpkg knows it, with DKMS and the
# kernel's headers and source installed. Not part of the lab.
title="Debian with DKMS, headers and source of $series"
needs=(base kernel@@)
inputs=(lib/tree.sh packages/packaged.txt)

build() {
	local release version
	release=$(<"$need_kernel/release")
	copy_tree "$need_base" "$out"
	# Nothing of a package is left out here.
	rm "$out/etc/dpkg/dpkg.cfg.d/lab"
	version=$(in_tree "$out" apt-cache policy "linux-headers-$release" | sed -n 's/^  Candidate: //p')
	# Without the kernel's own modules, DKMS takes it for one that is not installed, and runs no depmod. In
	# 6.12 the headers depend on them.
	# shellcheck disable=SC2046
	install_packages "$out" $(packages packaged) \
		{"linux-headers-$release","linux-headers-${release%-amd64}-common","linux-kbuild-${release%-amd64}","linux-source-$series"}="$version" \
		$(in_tree "$out" apt-cache pkgnames "linux-modules-$release")
	cp "$need_kernel/release" "$out/release"
}
