package guest

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
)

// The disk: a boot sector, GRUB's core right behind it, and one FAT partition
// that is an EFI system partition and holds kernel and initramfs.
const (
	sector         = 512
	diskSize       = 64 << 20
	partitionStart = 1 << 20
	partitionType  = 0xef // EFI system
	// bootCode is how much of the boot sector is code; what follows is the
	// disk's signature and the table of partitions.
	bootCode = 440
	grubLib  = "/usr/lib/grub"
	// grubFormat is GRUB for a BIOS.
	grubFormat = "i386-pc"
)

// kernelArgs makes the serial console the one that the guest's own messages and
// a kernel's last words go to.
const kernelArgs = "console=tty1 console=ttyS0,115200 quiet"

// grubConfig is built into GRUB, which then needs neither a menu nor a shell. The
// file system that GRUB was loaded from is its root.
const grubConfig = `linux /vmlinuz ` + kernelArgs + `
initrd /initrd.img
boot
`

// What systemd's boot manager reads: one entry, taken at once.
const (
	loaderConfig = "timeout 0\n"
	loaderEntry  = "title Drydock test guest\nlinux /vmlinuz\ninitrd /initrd.img\noptions " + kernelArgs + "\n"
)

// diskParts are the files that a disk is made from.
type diskParts struct {
	kernel, initrd string
	// bootManager is systemd's, for UEFI.
	bootManager string
}

// writeDisk makes the bootable disk. It needs no loop device and no mount: GRUB's
// core is put where its boot sector looks for it without being told, and mtools
// fills the partition in place.
//
// GRUB is for the BIOS only. Under UEFI it takes a quarter of the memory for
// itself and finds a kernel too big for that in a guest of 128 MiB; systemd's boot
// manager leaves the loading to the kernel and the firmware.
func writeDisk(ctx context.Context, to string, from diskParts) error {
	scratch, err := os.MkdirTemp(filepath.Dir(to), "disk-")
	if err != nil {
		return fmt.Errorf("making a folder for the disk's parts: %w", err)
	}
	defer func() { _ = os.RemoveAll(scratch) }()

	raw := filepath.Join(scratch, "raw")
	core := filepath.Join(scratch, "core.img")
	if err := makeGrub(ctx, scratch, core); err != nil {
		return err
	}
	if err := writeBootSectors(raw, core); err != nil {
		return err
	}
	if err := fillPartition(ctx, scratch, raw, from); err != nil {
		return err
	}
	return run(ctx, "qemu-img", "convert", "-q", "-f", "raw", "-O", "qcow2", raw, to)
}

// makeGrub makes the core that the boot sector loads. The firmware says from which
// disk, the prefix adds the partition.
func makeGrub(ctx context.Context, scratch, to string) error {
	config := filepath.Join(scratch, "grub.cfg")
	if err := os.WriteFile(config, []byte(grubConfig), 0o644); err != nil {
		return fmt.Errorf("writing GRUB's configuration: %w", err)
	}
	return run(ctx, "grub-mkimage", "--format="+grubFormat, "--prefix=(,msdos1)/",
		"--config="+config, "--output="+to,
		"biosdisk", "part_msdos", "fat", "linux", "boot")
}

// writeBootSectors makes the raw disk with all that comes before the partition.
func writeBootSectors(raw, core string) error {
	boot, err := os.ReadFile(filepath.Join(grubLib, grubFormat, "boot.img"))
	if err != nil {
		return fmt.Errorf("reading GRUB's boot sector (apt-get install grub-pc-bin): %w", err)
	}
	coreImage, err := os.ReadFile(core)
	if err != nil {
		return fmt.Errorf("reading GRUB's core: %w", err)
	}
	if sector+len(coreImage) > partitionStart {
		return fmt.Errorf("placing GRUB's core: its %d bytes don't fit before the partition", len(coreImage))
	}
	file, err := os.Create(raw)
	if err != nil {
		return fmt.Errorf("making the disk: %w", err)
	}
	defer func() { _ = file.Close() }()
	if err := file.Truncate(diskSize); err != nil {
		return fmt.Errorf("making the disk: %w", err)
	}
	if err := writeAt(file, 0, bootSector(boot)); err != nil {
		return err
	}
	// Sector 1 is where GRUB's boot sector looks when nothing else was written
	// into it, and the core itself goes on at sector 2 in the same way.
	if err := writeAt(file, sector, coreImage); err != nil {
		return err
	}
	return file.Close()
}

func writeAt(file io.WriterAt, offset int64, data []byte) error {
	if _, err := file.WriteAt(data, offset); err != nil {
		return fmt.Errorf("writing the disk at %d: %w", offset, err)
	}
	return nil
}

// bootSector is GRUB's code followed by a table with the one partition.
func bootSector(grub []byte) []byte {
	const (
		tableOffset = 446
		active      = 0x80
	)
	mbr := make([]byte, sector)
	copy(mbr, grub[:bootCode])
	entry := mbr[tableOffset:]
	entry[0] = active
	entry[4] = partitionType
	binary.LittleEndian.PutUint32(entry[8:], partitionStart/sector)
	binary.LittleEndian.PutUint32(entry[12:], (diskSize-partitionStart)/sector)
	mbr[sector-2], mbr[sector-1] = 0x55, 0xaa
	return mbr
}

// fillPartition makes the file system.
func fillPartition(ctx context.Context, scratch, raw string, from diskParts) error {
	config := filepath.Join(scratch, "loader.conf")
	entry := filepath.Join(scratch, "guest.conf")
	if err := os.WriteFile(config, []byte(loaderConfig), 0o644); err != nil {
		return fmt.Errorf("writing the boot manager's configuration: %w", err)
	}
	if err := os.WriteFile(entry, []byte(loaderEntry), 0o644); err != nil {
		return fmt.Errorf("writing the boot manager's configuration: %w", err)
	}
	partition := fmt.Sprintf("%s@@%d", raw, partitionStart)
	sectors := fmt.Sprint((diskSize - partitionStart) / sector)
	steps := [][]string{
		{"mformat", "-i", partition, "-T", sectors, "-h", "64", "-s", "32", "-N", "D7D0C000", "-v", "DRYDOCK", "::"},
		{"mmd", "-i", partition, "::/EFI", "::/EFI/BOOT", "::/loader", "::/loader/entries"},
		{"mcopy", "-i", partition, from.bootManager, "::/EFI/BOOT/BOOTX64.EFI"},
		{"mcopy", "-i", partition, config, "::/loader/loader.conf"},
		{"mcopy", "-i", partition, entry, "::/loader/entries/guest.conf"},
		{"mcopy", "-i", partition, from.kernel, "::/vmlinuz"},
		{"mcopy", "-i", partition, from.initrd, "::/initrd.img"},
	}
	for _, step := range steps {
		if err := run(ctx, step[0], step[1:]...); err != nil {
			return err
		}
	}
	return nil
}

// toolPackages names the Debian package of each tool, for whoever lacks it.
var toolPackages = map[string]string{
	"grub-mkimage": "grub-common grub-pc-bin",
	"mformat":      "mtools",
	"mmd":          "mtools",
	"mcopy":        "mtools",
	"qemu-img":     "qemu-utils",
}

func run(ctx context.Context, tool string, args ...string) error {
	cmd := exec.CommandContext(ctx, tool, args...)
	// mtools writes the time of day otherwise.
	cmd.Env = append(os.Environ(), "SOURCE_DATE_EPOCH=946684800", "TZ=UTC")
	out, err := cmd.CombinedOutput()
	if errors.Is(err, exec.ErrNotFound) {
		return fmt.Errorf("making the guest's disk: %s is not installed (apt-get install %s)", tool, toolPackages[tool])
	}
	if err != nil {
		return fmt.Errorf("making the guest's disk by %s: %w\n%s", tool, err, out)
	}
	return nil
}
