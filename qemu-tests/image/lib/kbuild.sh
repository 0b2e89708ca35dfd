# SPDX-License-Identifier: GPL-2.0-or-later
# shellcheck shell=bash
# Compiling kernel modules in the kbuild tree.

# Debian's kernels have CONFIG_NTB off: what autoconf.h would say if it were a module.
ntb_cflags='-DCONFIG_NTB_MODULE=1 -DCONFIG_NTB_MSI=1'

# kbuild_make TREE SRC OUT MAKE-ARGS…: builds the modules of OUT, with SRC visible as /src.
kbuild_make() {
	local tree=$1
	local -a binds=("$2" /src "$3" /out)
	shift 3
	in_tree "$tree" make --no-print-directory -C /headers M=/out -j"$(nproc)" \
		KCFLAGS="-Werror $ntb_cflags" CONFIG_DEBUG_INFO_BTF_MODULES= "$@" modules
}

# strip_modules TREE DIR: takes debug and type information out of the modules below DIR, in place.
strip_modules() {
	local -a binds=("$2" /out)
	in_tree "$1" find /out -name '*.ko' -exec strip --strip-debug -R .BTF {} +
}
