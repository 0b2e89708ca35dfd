# SPDX-License-Identifier: GPL-2.0-or-later
# shellcheck shell=bash
# One Debian kernel: image, headers, and the parts of its source the lab uses, all of one version.
#   release            what uname -r says
#   vmlinux            the uncompressed kernel, which starts 0.7 s faster under TCG
#   image/ headers/    the packages' content
#   source/            drivers/ntb, drivers/pci/switch, and scripts/ for checkpatch
title="Debian kernel $series, headers and NTB sources"
needs=(base)
inputs=(lib/tree.sh)

build() {
	local tree=$out/tree release version known name
	mkdir -p "$tree" "$out"/{image,headers,source}
	copy_tree "$need_base" "$tree"
	find_release
	if [[ ! $release ]]; then
		in_tree "$tree" apt-get -q update
		find_release
	fi
	[[ $release ]] || {
		printf 'the mirror has no linux-image-%s.*+deb13-amd64\n' "$series"
		return 1
	}
	version=$(in_tree "$tree" apt-cache policy "linux-image-$release" |
		sed -n 's/^  Candidate: //p')
	known=$(in_tree "$tree" apt-cache pkgnames)

	# The image is one package in 6.12 and three in 7.2.
	local -a image=() headers=("linux-headers-$release" "linux-headers-${release%-amd64}-common"
		"linux-kbuild-${release%-amd64}")
	for name in linux-{image,binary,modules,base}-"$release"; do
		! grep -qxF "$name" <<<"$known" || image+=("$name")
	done
	download_packages "$tree" "$version" "${image[@]}" "${headers[@]}" "linux-source-$series"

	extract_packages "$version" "$out/image" "${image[@]}"
	extract_packages "$version" "$out/headers" "${headers[@]}"
	extract_packages "$version" "$out/source" "linux-source-$series"
	xz -dc -T2 "$out/source/usr/src/linux-source-$series.tar.xz" |
		tar x -C "$out/source" --strip-components=1 --wildcards \
			'*/drivers/ntb' '*/drivers/pci/switch' '*/scripts/checkpatch.pl' '*/scripts/spelling.txt' \
			'*/scripts/const_structs.checkpatch'
	rm -rf "$out/source/usr" "$tree"
	unpack_vmlinux "$(find "$out/image" -name "vmlinuz*")" >"$out/vmlinux"
	printf '%s\n' "$release" >"$out/release"
}

find_release() {
	release=$(in_tree "$tree" apt-cache pkgnames "linux-image-$series." |
		sed -n 's/^linux-image-\([0-9.]*+deb13-amd64\)$/\1/p' | sort -V | tail -n1)
}

# unpack_vmlinux BZIMAGE: the kernel inside, by the fields of the x86 boot protocol
# (Documentation/arch/x86/boot.rst): setup_sects, payload_offset, payload_length. The last four
# bytes of the payload are the length of the unpacked kernel.
unpack_vmlinux() {
	local sects offset length
	sects=$(od -An -t u1 -j $((0x1f1)) -N1 "$1")
	read -r offset length < <(od -An -t u4 -j $((0x248)) -N8 "$1")
	offset=$(((sects + 1) * 512 + offset))
	dd if="$1" of="$out/payload" bs=1M iflag=skip_bytes,count_bytes status=none \
		skip="$offset" count=$((length - 4))
	case $(od -An -t x1 -N4 "$out/payload" | tr -d ' ') in
	28b52ffd) zstd -dcq "$out/payload" ;;
	fd377a58) xz -dc "$out/payload" ;;
	*)
		printf 'the kernel of %s is compressed in an unknown way\n' "$1" >&2
		return 1
		;;
	esac
	rm -f "$out/payload"
}
