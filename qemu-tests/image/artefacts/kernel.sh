# SPDX-License-Identifier: GPL-2.0-or-later
# shellcheck shell=bash
# The newest Debian kernel of a suite: image, headers, and the parts of its source the lab uses, all of
# one version.
#   release            what uname -r says
#   vmlinux            the uncompressed kernel, which starts 0.7 s faster under TCG
#   image/ headers/    the packages' content
#   source/            drivers/ntb, drivers/pci/switch
#   packages/          the packages: who needs more of this kernel takes it from here, because the archive
#                      may have another one by then
title="Debian kernel $series, headers and NTB sources"
needs=(base)
inputs=(lib/tree.sh kernels.txt)

build() {
	local tree=$out/tree release version source known name
	mkdir -p "$tree" "$out"/{image,headers,source,packages}
	copy_tree "$need_base" "$tree"
	# The lists may be old, and name what the mirror no longer has. Without a mirror they have to do.
	in_tree "$tree" apt-get -q update || true
	find_release "$(suite_of "$series")"
	source=linux-source-$(cut -d. -f1,2 <<<"$release")
	known=$(in_tree "$tree" apt-cache pkgnames)

	# The image is one package in 6.12 and four in later ones.
	local -a image=() headers=("linux-headers-$release" "linux-headers-${release%-amd64}-common"
		"linux-kbuild-${release%-amd64}")
	for name in linux-{image,binary,modules,base}-"$release"; do
		! grep -qxF "$name" <<<"$known" || image+=("$name")
	done
	download_packages "$tree" "$version" "${image[@]}" "${headers[@]}" "$source"
	for name in "${image[@]}" "${headers[@]}" "$source"; do
		cp --link "$cache/apt/${name}_${version}"_*.deb "$out/packages/"
	done

	extract_packages "$version" "$out/image" "${image[@]}"
	extract_packages "$version" "$out/headers" "${headers[@]}"
	extract_packages "$version" "$out/source" "$source"
	xz -dc -T2 "$out/source/usr/src/$source.tar.xz" |
		tar x -C "$out/source" --strip-components=1 --wildcards '*/drivers/ntb' '*/drivers/pci/switch'
	rm -rf "$out/source/usr" "$tree"
	unpack_vmlinux "$(find "$out/image" -name "vmlinuz*")" >"$out/vmlinux"
	printf '%s\n' "$release" >"$out/release"
}

# find_release SUITE: what apt installs as linux-image-amd64 there. That package is of the kernel's
# signed source, which the archive gets when it has all the others.
find_release() {
	version=$(in_tree "$tree" apt-cache -o "APT::Default-Release=$1" policy linux-image-amd64 |
		sed -n 's/^  Candidate: //p')
	release=$(in_tree "$tree" apt-cache show "linux-image-amd64=$version" |
		sed -n 's/^Depends:.* linux-image-\([^ ,]*-amd64\).*/\1/p')
	[[ $release ]] || {
		printf 'the mirror has no kernel in %s: linux-image-amd64 is %s\n' "$1" "${version:-not there}"
		return 1
	}
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
