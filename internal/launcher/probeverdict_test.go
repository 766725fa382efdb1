package launcher

import (
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"testing"
	"time"

	"drydock.dev/drydock/internal/contracts/nodeprobe"
	"drydock.dev/drydock/internal/launcher/bootprobe"
	"drydock.dev/drydock/test/shipped"
)

func TestWhatFollowsFromTheProbesGuests(t *testing.T) {
	emulated := capabilities{version: "7.2.22", models: []string{"qemu64"}, machines: []string{"q35"}}
	accelerated := capabilities{version: "7.2.22", models: []string{"Haswell", "qemu64"}, machines: []string{"q35"}}
	ok := func(ms int64) *bootprobe.Outcome {
		return &bootprobe.Outcome{OK: true, Stage: "long mode on the second CPU", Took: time.Duration(ms) * time.Millisecond}
	}
	failed := &bootprobe.Outcome{Stage: "real mode", Reason: "the guest stopped", Took: 2 * time.Second}
	late := &bootprobe.Outcome{Stage: "real mode", Reason: "the guest stopped", Took: 2 * time.Second, Starved: true}
	works := nodeprobe.Accelerator{Usable: true, Milliseconds: 300}
	for name, c := range map[string]struct {
		outcomes  outcomes
		requested string
		use       string
		kvm, tcg  nodeprobe.Accelerator
		models    int
		starved   bool
	}{
		"everything works": {
			outcomes: outcomes{tcg: ok(300), kvm: ok(10), kvmUEFI: ok(900)},
			use:      "kvm", kvm: nodeprobe.Accelerator{Usable: true, Milliseconds: 10}, tcg: works, models: 2},
		"everything works, and emulation is asked for": {
			outcomes: outcomes{tcg: ok(300), tcgUEFI: ok(900)}, requested: "tcg",
			use: "tcg", kvm: nodeprobe.Accelerator{Reason: "not tried: DRYDOCK_ACCEL asks for emulation"}, tcg: works, models: 1},
		"the node has no KVM": {
			outcomes: outcomes{tcg: ok(300), tcgUEFI: ok(900), kvmAbsent: true},
			use:      "tcg", kvm: nodeprobe.Accelerator{Absent: true, Reason: "the node has no /dev/kvm"}, tcg: works, models: 1},
		"the node has no KVM, and it is asked for": {
			outcomes: outcomes{tcg: ok(300), kvmAbsent: true}, requested: "kvm",
			kvm: nodeprobe.Accelerator{Absent: true, Reason: "the node has no /dev/kvm"}, tcg: works, models: 1},
		"KVM does not run the guest": {
			outcomes: outcomes{tcg: ok(300), kvm: failed},
			use:      "tcg", kvm: nodeprobe.Accelerator{Reason: "the guest stopped", Stage: "real mode", Milliseconds: 2000}, tcg: works, models: 1},
		"KVM does not run the guest, and is asked for": {
			outcomes: outcomes{tcg: ok(300), kvm: failed}, requested: "kvm",
			kvm: nodeprobe.Accelerator{Reason: "the guest stopped", Stage: "real mode", Milliseconds: 2000}, tcg: works, models: 1},
		"KVM runs the guest through the BIOS only": {
			outcomes: outcomes{tcg: ok(300), tcgUEFI: ok(900), kvm: ok(10), kvmUEFI: failed}, use: "tcg",
			kvm: nodeprobe.Accelerator{Reason: "through UEFI, the guest stopped", Stage: "real mode", Milliseconds: 10}, tcg: works, models: 1},
		"UEFI itself is broken": {
			outcomes: outcomes{tcg: ok(300), tcgUEFI: failed, kvm: ok(10), kvmUEFI: failed}, use: "kvm",
			kvm: nodeprobe.Accelerator{Usable: true, UEFI: "the guest stopped", Milliseconds: 10},
			tcg: nodeprobe.Accelerator{Usable: true, UEFI: "the guest stopped", Milliseconds: 300}, models: 2},
		"only KVM works": {
			outcomes: outcomes{tcg: failed, kvm: ok(10), kvmUEFI: ok(900)}, use: "kvm", kvm: nodeprobe.Accelerator{Usable: true, Milliseconds: 10},
			tcg: nodeprobe.Accelerator{Reason: "the guest stopped", Stage: "real mode", Milliseconds: 2000}, models: 2},
		"only KVM works, and not through UEFI": {
			outcomes: outcomes{tcg: failed, kvm: ok(10), kvmUEFI: failed}, use: "kvm",
			kvm: nodeprobe.Accelerator{Usable: true, UEFI: "the guest stopped", Milliseconds: 10},
			tcg: nodeprobe.Accelerator{Reason: "the guest stopped", Stage: "real mode", Milliseconds: 2000}, models: 2},
		"nothing works": {
			outcomes: outcomes{tcg: failed, kvm: failed},
			kvm:      nodeprobe.Accelerator{Reason: "the guest stopped", Stage: "real mode", Milliseconds: 2000},
			tcg:      nodeprobe.Accelerator{Reason: "the guest stopped", Stage: "real mode", Milliseconds: 2000}, models: 1},
		"the emulated guest got no CPU": {
			outcomes: outcomes{tcg: late, kvmAbsent: true}, starved: true,
			kvm: nodeprobe.Accelerator{Absent: true, Reason: "the node has no /dev/kvm"},
			tcg: nodeprobe.Accelerator{Reason: "the guest stopped", Stage: "real mode", Milliseconds: 2000}, models: 1},
		"only KVM may be used, and its guest got no CPU": {
			outcomes: outcomes{tcg: ok(300), kvm: late}, requested: "kvm", starved: true,
			kvm: nodeprobe.Accelerator{Reason: "the guest stopped", Stage: "real mode", Milliseconds: 2000}, tcg: works, models: 1},
		"the guest with KVM got no CPU, and emulation works": {
			outcomes: outcomes{tcg: ok(300), tcgUEFI: ok(900), kvm: late}, use: "tcg", starved: true,
			kvm: nodeprobe.Accelerator{Reason: "the guest stopped", Stage: "real mode", Milliseconds: 2000}, tcg: works, models: 1},
		"the emulated guest got no CPU, and KVM works": {
			outcomes: outcomes{tcg: late, kvm: ok(10), kvmUEFI: ok(900)}, use: "kvm", kvm: nodeprobe.Accelerator{Usable: true, Milliseconds: 10},
			tcg: nodeprobe.Accelerator{Reason: "the guest stopped", Stage: "real mode", Milliseconds: 2000}, models: 2},
	} {
		r := result(c.outcomes, c.requested, emulated, accelerated)
		if !reflect.DeepEqual(r.KVM, c.kvm) || !reflect.DeepEqual(r.TCG, c.tcg) {
			t.Errorf("%s: KVM %+v, emulation %+v", name, r.KVM, r.TCG)
		}
		if r.Use() != c.use || len(r.CPUModels) != c.models || r.Starved != c.starved {
			t.Errorf("%s: guests run with %q as %v, starved: %t", name, r.Use(), r.CPUModels, r.Starved)
		}
	}
}

func TestKVMHasTwoSecondsOrTwiceWhatEmulationTook(t *testing.T) {
	for name, c := range map[string]struct {
		tcg  bootprobe.Outcome
		want time.Duration
	}{
		"a machine with time":   {bootprobe.Outcome{OK: true, Took: 300 * time.Millisecond}, 2 * time.Second},
		"a busy machine":        {bootprobe.Outcome{OK: true, Took: 3 * time.Second}, 6 * time.Second},
		"emulation that failed": {bootprobe.Outcome{Took: 20 * time.Second}, 2 * time.Second},
	} {
		if got := kvmTime(&c.tcg); got != c.want {
			t.Errorf("%s: %v, want %v", name, got, c.want)
		}
	}
}

// qemuWhose writes a QEMU whose arguments a script changes; in place of KVM it emulates, so that KVM works on every
// host.
func qemuWhose(t *testing.T, script string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "qemu")
	text := "#!/bin/sh\nall=\"$*\"\n" + script + "\nfor word; do\n" +
		"  shift\n  [ \"$word\" != kvm ] || word=tcg,thread=single\n  set -- \"$@\" \"$word\"\ndone\nexec " + qemuBinary(t) + " \"$@\"\n"
	if err := os.WriteFile(path, []byte(text), 0o755); err != nil {
		t.Fatal(err)
	}
	return path
}

func TestANodeIsProbed(t *testing.T) {
	device := filepath.Join(t.TempDir(), "kvm")
	if err := os.WriteFile(device, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	root := shipped.File(t, "/")
	const fails = "echo 'qemu: failed to initialize kvm: Device or resource busy' >&2; exit 1"
	for name, c := range map[string]struct {
		script, device, root string
		use, kvm             string
	}{
		"KVM works":                   {"", device, root, "kvm", ""},
		"there is no KVM and no UEFI": {"", "/no/such/device", "/no/such/folder", "tcg", "the node has no /dev/kvm"},
		"QEMU refuses KVM": {`case "$all" in *"-accel kvm"*) ` + fails + "; esac", device, root, "tcg",
			"QEMU does not start: QEMU ended with exit code 1: qemu: failed to initialize kvm: Device or resource busy"},
		"KVM runs no UEFI": {`case "$all" in *"-accel kvm"*-kernel*) ` + fails + "; esac", device, root, "tcg",
			"through UEFI, QEMU does not start: QEMU ended with exit code 1: qemu: failed to initialize kvm: Device or resource busy"},
		"UEFI does not run at all": {`case "$all" in *-kernel*) ` + fails + "; esac", device, root, "kvm", ""},
		"QEMU does not run at all": {fails, device, root, "",
			"QEMU does not start: QEMU ended with exit code 1: qemu: failed to initialize kvm: Device or resource busy"},
	} {
		t.Run(name, func(t *testing.T) {
			r := prober{qemu: qemuWhose(t, c.script), device: c.device, root: c.root, deadline: patience}.probe(t.Context())
			if r.Use() != c.use || r.KVM.Reason != c.kvm {
				t.Errorf("guests run with %q; KVM %+v, emulation %+v", r.Use(), r.KVM, r.TCG)
			}
			if absent := c.root != root; r.UEFIAbsent != absent {
				t.Errorf("UEFI is absent: %t", r.UEFIAbsent)
			}
		})
	}
}

func TestWhichMachineTypesQEMUHas(t *testing.T) {
	all, deprecated := machineTypes([]machineInfo{
		{Name: "pc-q35-7.2", Alias: "q35"}, {Name: "pc-q35-2.4", Deprecated: true}, {Name: "pc-i440fx-1.4", Deprecated: true}, {Name: "none"},
	})
	if want := []string{"pc-q35-2.4", "pc-q35-7.2", "q35"}; !slices.Equal(all, want) {
		t.Errorf("all are %v, want %v", all, want)
	}
	if want := []string{"pc-q35-2.4"}; !slices.Equal(deprecated, want) {
		t.Errorf("deprecated are %v, want %v", deprecated, want)
	}
}

func TestTheMachineTypesAreThoseOfTheQEMUThatIsUsed(t *testing.T) {
	works := &bootprobe.Outcome{OK: true}
	emulated, accelerated := capabilities{deprecated: []string{"pc-q35-2.4"}}, capabilities{deprecated: []string{"pc-q35-2.5"}}
	for want, o := range map[string]outcomes{
		"pc-q35-2.4": {tcg: works, tcgUEFI: works, kvmAbsent: true}, "pc-q35-2.5": {tcg: works, kvm: works, kvmUEFI: works},
	} {
		if r := result(o, "", emulated, accelerated); !slices.Equal(r.DeprecatedMachineTypes, []string{want}) {
			t.Errorf("deprecated are %v, want %s", r.DeprecatedMachineTypes, want)
		}
	}
}
