# SPDX-License-Identifier: GPL-2.0-or-later
# shellcheck shell=bash
# The debug kernel: Debian's source of the series, with the options of debug/config and no others.
#   release vmlinux source/         as those of the Debian kernel
#   image/usr/lib/modules/RELEASE   its modules
#   headers/usr/src/…               what modules are compiled against
#   config
title="debug kernel of Debian's $series source"
needs=(kernel-toolchain kernel@"${series%-debug}")
inputs=(lib/tree.sh debug)

build() {
	local release work=$out/work
	mkdir -p "$work"/{package,linux} "$out/image/usr/lib" "$out/headers/usr/src" "$cache/ccache"
	dpkg-deb -x "$need_kernel"/packages/linux-source-*.deb "$work/package"
	xz -dc -T2 "$work"/package/usr/src/linux-source-*.tar.xz | tar x -C "$work/linux" --strip-components=1

	# 6.12.y tells lockdep who has frozen a queue, and not that nvme lets somebody else unfreeze it,
	# as later kernels do.
	sed -i -e '/^void nvme_start_freeze/,/^}/s/blk_freeze_queue_start(/blk_freeze_queue_start_non_owner(/' \
		-e '/^void nvme_unfreeze/,/^}/s/blk_mq_unfreeze_queue(/blk_mq_unfreeze_queue_non_owner(/' \
		"$work/linux/drivers/nvme/host/core.c"
	cp "$image_dir/debug/config" "$work/linux/pcilend.config"
	in_linux make KCONFIG_ALLCONFIG=pcilend.config allnoconfig
	check_config "$work/linux/.config"
	# Undefined behaviour is watched for in modules that are built against this kernel, not in itself.
	# A PVH boot calls memcmp() before there is KASAN's shadow.
	in_linux make CC='ccache gcc' -j"$(nproc)" UBSAN_SANITIZE=n KASAN_SANITIZE_string.o=n \
		vmlinux modules
	release=$(<"$work/linux/include/config/kernel.release")
	in_linux make INSTALL_MOD_PATH=/out/image/usr DEPMOD=true modules_install
	# shellcheck disable=SC2016
	in_linux make run-command \
		KBUILD_RUN_COMMAND='$(srctree)/scripts/package/install-extmod-build /out/headers'"/usr/src/linux-headers-$release"
	in_linux strip -o /out/vmlinux vmlinux

	rm -f "$out/image/usr/lib/modules/$release"/{build,source}
	cp "$work/linux/.config" "$out/config"
	cp -a --reflink=auto "$need_kernel/source" "$out/"
	printf '%s\n' "$release" >"$out/release"
	rm -rf "$work"
}

in_linux() { # CMD…
	local -a binds=("$out" /out "$work/linux" /src "$cache/ccache" /mnt)
	in_tree "$need_kernel_toolchain" env -C /src CCACHE_DIR=/mnt CCACHE_MAXSIZE=2G \
		KBUILD_BUILD_USER=pcilend KBUILD_BUILD_HOST=lab KBUILD_BUILD_TIMESTAMP=1970-01-01 "$@"
}

# Every option asked for must have come out as asked.
check_config() { # .CONFIG
	local lost
	lost=$(grep -E '^(CONFIG_|# CONFIG_)' "$image_dir/debug/config" | grep -vxFf "$1" |
		while IFS= read -r line; do
			# An option that cannot even be chosen is off too.
			[[ $line == '# '* ]] && ! grep -q "^$(cut -d' ' -f2 <<<"$line")=" "$1" || printf '%s\n' "$line"
		done)
	[[ ! $lost ]] || {
		printf 'the kernel cannot have these options of debug/config together with the others:\n%s\n' "$lost"
		return 1
	}
}
