# SPDX-License-Identifier: GPL-2.0-or-later
# shellcheck shell=bash
# A file system to run things from (chroot) on a host VM: Debian with users of VFIO that know nothing of
# pcilend. Not part of the lab; scenarios attach it.
#   vfio-users.ext4
title="Debian with users of VFIO: QEMU's tools, DPDK"
needs=(base host-tree)
inputs=(lib/tree.sh lib/disk.sh packages/vfio-users.txt)

build() {
	local tree=$out/tree version
	mkdir "$tree"
	copy_tree "$need_base" "$tree"
	# shellcheck disable=SC2046
	install_packages "$tree" $(packages vfio-users)
	# Installed, that package would bring DPDK's development files, some 200 MB.
	version=$(in_tree "$tree" dpkg-query -W -f '${Version}' librte-eal25)
	download_packages "$tree" "$version" dpdk-dev
	extract_packages "$version" "$out/dev" dpdk-dev
	cp "$out/dev/usr/bin/dpdk-testpmd" "$tree/usr/bin/"
	in_tree "$tree" sh -c '! ldd /usr/bin/dpdk-testpmd | grep "not found"'
	lean_tree "$tree"
	make_ext4 "$need_host_tree" "$tree" "$out/vfio-users.ext4" 512M vfio-users -O ^has_journal
	rm -rf "$tree" "$out/dev"
}
