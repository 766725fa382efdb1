package guest

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"

	"drydock.dev/drydock/images/qemutree"
)

// The disk has a boot sector and one FAT partition. That is an EFI system partition, contains SYSLINUX for a BIOS, and
// holds kernel and initramfs.
const (
	sector         = 512
	diskSize       = 64 << 20
	partitionStart = 1 << 20
	partitionType  = 0xef // EFI system
	// bootCode is the size of the code in the boot sector; the disk's signature and the partition table follow.
	bootCode = 440
)

// kernelArgs sends the guest's own messages and a kernel's last words to the serial console. nokaslr: under UEFI a
// kernel sometimes finds no random place for itself in a small guest. no_timer_check: on a busy machine the emulated
// timer may miss the moment of the kernel's check, and a kernel without a timer gives up. cryptomgr.notests: Debian's
// kernel tests its ciphers at its start, which took half of the computation until /init. On one CPU the kernel removes
// the locks from its own code, which an emulator has translated already: a twentieth of the time until /init.
const kernelArgs = "console=tty1 console=ttyS0,115200 quiet nokaslr no_timer_check cryptomgr.notests noreplace-smp"

// Configuration of the boot loaders: SYSLINUX under a BIOS, systemd's boot manager under UEFI. Both have one entry and
// start it at once.
const (
	biosConfig = "DEFAULT guest\nPROMPT 0\nTIMEOUT 0\nLABEL guest\n LINUX /vmlinuz\n INITRD /initrd.img\n APPEND %s\n"
	efiConfig  = "timeout 0\n"
	efiEntry   = "title Drydock test guest\nlinux /vmlinuz\ninitrd /initrd.img\noptions %s\n"
)

type diskParts struct {
	kernel, initrd string
	// bootSector is SYSLINUX's code that starts the active partition.
	bootSector string
	// bootManager is systemd's, for UEFI.
	bootManager string
	args        string
	// cache has QEMU, for the disk's format.
	cache string
}

// writeDisk makes the bootable disk, without a loop device and without a mount.
//
// GRUB would serve both kinds of firmware, but measurements speak against it: without hardware virtualization it takes
// three seconds to load the files that SYSLINUX loads in one, and under UEFI it finds the kernel too big for a guest of
// 128 MiB.
func writeDisk(ctx context.Context, to string, from diskParts) error {
	scratch, err := os.MkdirTemp(filepath.Dir(to), "disk-")
	if err != nil {
		return fmt.Errorf("making a folder for the disk's parts: %w", err)
	}
	defer func() { _ = os.RemoveAll(scratch) }()

	raw := filepath.Join(scratch, "raw")
	if err := writeEmptyDisk(raw, from.bootSector); err != nil {
		return err
	}
	args := strings.TrimSpace(kernelArgs + " " + from.args)
	err = fillPartition(ctx, scratch, raw, contents{
		folders: []string{"/EFI", "/EFI/BOOT", "/loader", "/loader/entries"},
		texts:   [][2]string{{"/loader/loader.conf", efiConfig}, {"/loader/entries/guest.conf", fmt.Sprintf(efiEntry, args)}, {"/syslinux.cfg", fmt.Sprintf(biosConfig, args)}},
		files:   [][2]string{{efiLoader, from.bootManager}, {"/vmlinuz", from.kernel}, {"/initrd.img", from.initrd}},
	})
	if err != nil {
		return err
	}
	if err := run(ctx, "syslinux", "--offset", fmt.Sprint(partitionStart), "--install", raw); err != nil {
		return err
	}
	return convert(ctx, from.cache, raw, to)
}

// efiLoader is the file that UEFI boots from a disk without a boot entry.
const efiLoader = "/EFI/BOOT/BOOTX64.EFI"

func convert(ctx context.Context, cache, raw, to string) error {
	qemu, err := qemutree.Make(ctx, cache)
	if err != nil {
		return err
	}
	return run(ctx, filepath.Join(qemu, "bin", "qemu-img"), "convert", "-q", "-f", "raw", "-O", "qcow2", raw, to)
}

func writeEmptyDisk(raw, bootSectorFile string) error {
	code, err := os.ReadFile(bootSectorFile)
	if err != nil {
		return fmt.Errorf("reading the boot sector: %w", err)
	}
	if err := os.WriteFile(raw, bootSector(code), 0o644); err != nil {
		return fmt.Errorf("making the disk: %w", err)
	}
	if err := os.Truncate(raw, diskSize); err != nil {
		return fmt.Errorf("making the disk: %w", err)
	}
	return nil
}

func bootSector(code []byte) []byte {
	const (
		tableOffset = 446
		active      = 0x80
	)
	mbr := make([]byte, sector)
	copy(mbr, code[:min(bootCode, len(code))])
	entry := mbr[tableOffset:]
	entry[0] = active
	entry[4] = partitionType
	binary.LittleEndian.PutUint32(entry[8:], partitionStart/sector)
	binary.LittleEndian.PutUint32(entry[12:], (diskSize-partitionStart)/sector)
	mbr[sector-2], mbr[sector-1] = 0x55, 0xaa
	return mbr
}

type contents struct {
	folders []string
	// texts and files begin with the name there; a text is given, and a file is copied from a path.
	texts, files [][2]string
}

func fillPartition(ctx context.Context, scratch, raw string, with contents) error {
	files := slices.Clone(with.files)
	for i, text := range with.texts {
		name := filepath.Join(scratch, fmt.Sprintf("text-%d", i))
		if err := os.WriteFile(name, []byte(text[1]), 0o644); err != nil {
			return fmt.Errorf("writing the boot loader's %s: %w", text[0], err)
		}
		files = append(files, [2]string{text[0], name})
	}
	partition := fmt.Sprintf("%s@@%d", raw, partitionStart)
	sectors := fmt.Sprint((diskSize - partitionStart) / sector)
	steps := [][]string{
		{"mformat", "-i", partition, "-T", sectors, "-h", "64", "-s", "32", "-c", "64", "-N", "D7D0C000", "-v", "DRYDOCK", "::"},
		{"mmd", "-i", partition},
	}
	for _, folder := range with.folders {
		steps[1] = append(steps[1], "::"+folder)
	}
	for _, file := range files {
		steps = append(steps, []string{"mcopy", "-i", partition, file[1], "::" + file[0]})
	}
	for _, step := range steps {
		if err := run(ctx, step[0], step[1:]...); err != nil {
			return err
		}
	}
	return nil
}

// toolPackages names the Debian package of each tool, for the error when it is missing.
var toolPackages = map[string]string{
	"mformat":  "mtools",
	"mmd":      "mtools",
	"mcopy":    "mtools",
	"syslinux": "syslinux",
}

func run(ctx context.Context, tool string, args ...string) error {
	cmd := exec.CommandContext(ctx, tool, args...)
	// Otherwise mtools writes the time of day into the file system.
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
