# SPDX-License-Identifier: GPL-2.0-or-later
# shellcheck shell=bash
# Modules of a host VM with the debug kernel, as artefacts/modules.sh has them: all there are.
#   lib/modules/RELEASE
title="modules of the host VM, kernel $series"
needs=(kernel@@ ntb@@ kbuild@@)
inputs=(lib/tree.sh lib/kbuild.sh lib/modules.sh)

build() {
	local release to
	release=$(<"$need_kernel/release")
	to=$out/lib/modules/$release
	mkdir -p "$out/lib/modules"
	cp -a "$need_kernel/image/usr/lib/modules/$release" "$to"
	strip_modules "$need_kbuild" "$to"
	mkdir "$to"/{ntb,updates}
	cp "$need_ntb"/*.ko "$to/ntb/"
	run_depmod "$need_kbuild" "$out" "$release"
}
