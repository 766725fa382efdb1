package guest

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// TestModulesAreLoadedAfterWhatTheyNeed reads modules.dep as modprobe does, from the end of the line to its beginning:
// each module must come after its dependencies.
func TestModulesAreLoadedAfterWhatTheyNeed(t *testing.T) {
	set := &moduleSet{chosen: map[string]kernelModule{}}
	for name, depends := range map[string][]string{
		"virtio_blk": {"virtio", "virtio_ring"}, "virtio": {"virtio_ring"}, "virtio_ring": nil,
		"isofs": {"cdrom", "builtin"}, "cdrom": nil,
	} {
		set.chosen[name] = kernelModule{name: name, path: "kernel/" + name + ".ko", depends: depends}
	}
	want := `kernel/cdrom.ko:
kernel/isofs.ko: kernel/cdrom.ko
kernel/virtio.ko: kernel/virtio_ring.ko
kernel/virtio_blk.ko: kernel/virtio.ko kernel/virtio_ring.ko
kernel/virtio_ring.ko:
`
	if got := string(set.dep()); got != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
}

func TestAliasesLeadToTheirModules(t *testing.T) {
	set := &moduleSet{chosen: map[string]kernelModule{
		"isofs": {name: "isofs", aliases: []string{"fs-iso9660", "iso9660"}},
		"evdev": {name: "evdev", aliases: []string{"input:b*"}},
	}}
	want := "alias input:b* evdev\nalias fs-iso9660 isofs\nalias iso9660 isofs\n"
	if got := string(set.alias()); got != want {
		t.Errorf("got %q, want %q", got, want)
	}
}

func TestTheBootSectorHasOnePartitionThatReachesTheDisksEnd(t *testing.T) {
	code := []byte(strings.Repeat("c", 512))
	mbr := bootSector(code)
	if string(mbr[:bootCode]) != string(code[:bootCode]) || mbr[bootCode] != 0 {
		t.Error("the code is not where it belongs")
	}
	want := []byte{0x80, 0, 0, 0, 0xef, 0, 0, 0, 0, 8, 0, 0, 0, 0xf8, 1, 0}
	if got := mbr[446:462]; !slices.Equal(got, want) {
		t.Errorf("the partition's entry is % x, want % x", got, want)
	}
	if mbr[510] != 0x55 || mbr[511] != 0xaa {
		t.Error("the firmware would not take it for a boot sector")
	}
}

func TestAModuleThatTheKernelLacksIsNamed(t *testing.T) {
	folder := t.TempDir()
	if err := os.WriteFile(filepath.Join(folder, "modules.builtin"), []byte("kernel/fs/ext4/ext4.ko\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Mkdir(filepath.Join(folder, "kernel"), 0o700); err != nil {
		t.Fatal(err)
	}
	set, err := chooseModules(t.Context(), folder, []string{"ext4"})
	if err != nil || len(set.chosen) != 0 {
		t.Errorf("a module that is built in: got %v, %v", set, err)
	}
	_, err = chooseModules(t.Context(), folder, []string{"virtio-pci"})
	if err == nil || err.Error() != "choosing kernel modules: this kernel has no module virtio_pci" {
		t.Errorf("got the error %v", err)
	}
}
