package guest

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"drydock.dev/drydock/images/debian"
)

// signedPackages have the boot chain for Secure Boot: shim, signed by Microsoft, and GRUB, signed by Debian like its
// kernels. Shim contains Debian's key.
var signedPackages = []string{"shim-signed", "grub-efi-amd64-signed"}

const signedConfig = "set timeout=0\nlinux /vmlinuz " + kernelArgs + "\ninitrd /initrd.img\nboot\n"

// SignedDisk returns a disk of a built guest that UEFI boots with Microsoft's keys only. GRUB needs more than 256 MiB
// of memory for it. The disk is made beside the guest's own unless it exists.
func SignedDisk(ctx context.Context, cache string, of Files) (string, error) {
	tree, err := debian.Extract(ctx, cache, signedPackages)
	if err != nil {
		return "", err
	}
	disk := filepath.Join(filepath.Dir(of.Disk), "signed-"+tree.Key+".qcow2")
	if _, err := os.Stat(disk); !errors.Is(err, fs.ErrNotExist) {
		return disk, err
	}
	scratch, remove, err := debian.Scratch(filepath.Dir(of.Disk), "signed-")
	if err != nil {
		return "", fmt.Errorf("making the signed disk: %w", err)
	}
	defer remove()
	raw, made := filepath.Join(scratch, "raw"), filepath.Join(scratch, "made")
	if err := os.WriteFile(raw, bootSector(nil), 0o644); err != nil {
		return "", fmt.Errorf("making the signed disk: %w", err)
	}
	if err := os.Truncate(raw, diskSize); err != nil {
		return "", fmt.Errorf("making the signed disk: %w", err)
	}
	err = fillPartition(ctx, scratch, raw, contents{
		folders: []string{"/EFI", "/EFI/BOOT", "/EFI/debian"},
		texts:   [][2]string{{"/EFI/debian/grub.cfg", signedConfig}},
		files: [][2]string{
			{efiLoader, tree.Path("/usr/lib/shim/shimx64.efi.signed")},
			{"/EFI/BOOT/grubx64.efi", tree.Path("/usr/lib/grub/x86_64-efi-signed/grubx64.efi.signed")},
			{"/vmlinuz", of.Kernel}, {"/initrd.img", of.Initrd},
		},
	})
	if err != nil {
		return "", err
	}
	if err := convert(ctx, cache, raw, made); err != nil {
		return "", err
	}
	if err := os.Rename(made, disk); err != nil {
		return "", fmt.Errorf("moving the signed disk into place: %w", err)
	}
	return disk, nil
}
