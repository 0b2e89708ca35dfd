# SPDX-License-Identifier: GPL-2.0-or-later
# shellcheck shell=bash
# Kernel modules of the host VM, uncompressed, with the NTB modules, depmod's index and an empty
# directory for ours:
#   lib/modules/RELEASE
title="modules of the host VM, kernel $series"
needs=(kernel@@ ntb@@ kbuild@@)
inputs=(lib/tree.sh lib/kbuild.sh lib/modules.sh host/modules.txt)

build() {
	local release from=$need_kernel/image/usr/lib/modules to
	release=$(<"$need_kernel/release")
	to=$out/lib/modules
	mkdir -p "$to/$release"

	# All modules are indexed once for their dependencies, then those wanted are taken.
	local all=$out/all/lib/modules
	mkdir -p "$all"
	cp -a "$from/$release" "$all/"
	run_depmod "$need_kbuild" "$out/all" "$release"
	module_closure "$all/$release/modules.dep" "$image_dir/host/modules.txt" |
		copy_listed "$all/$release" "$to/$release"
	cp "$all/$release"/modules.{order,builtin*} "$to/$release/"
	rm -rf "$out/all"

	find "$to" -name '*.ko.xz' -print0 | xargs -0 -r -P2 -n50 xz -d
	find "$to" -name '*.ko.zst' -print0 | xargs -0 -r -P2 -n50 zstd -q -d --rm
	# Under TCG the modules' type information costs more time to load than their code.
	strip_modules "$need_kbuild" "$to"
	mkdir "$to/$release"/{ntb,updates}
	cp "$need_ntb"/*.ko "$to/$release/ntb/"
	run_depmod "$need_kbuild" "$out" "$release"
}
