package disk

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"
	v1 "kubevirt.io/api/core/v1"

	"drydock.dev/drydock/internal/contracts/layout"
	"drydock.dev/drydock/internal/rules/machine"
)

const testTemplate = layout.UEFIVars

func newStateContainer(t *testing.T) (c *container, claim string) {
	t.Helper()
	c = newContainer(t)
	c.mkdir(t, "/run/kubevirt-state")
	c.mkdir(t, "/usr/share/OVMF")
	if err := os.WriteFile(filepath.Join(c.path, testTemplate), []byte("template"), 0o600); err != nil {
		t.Fatal(err)
	}
	return c, filepath.Join(c.path, "/run/kubevirt-state")
}

func TestWhatIsKeptOfAVM(t *testing.T) {
	efi := func(secure bool) *v1.Firmware {
		return &v1.Firmware{Bootloader: &v1.Bootloader{EFI: &v1.EFI{Persistent: new(true), SecureBoot: &secure}}}
	}
	for name, test := range map[string]struct {
		tpm      *v1.TPMDevice
		firmware *v1.Firmware
		want     *State
	}{
		"nothing":                           {nil, nil, nil},
		"nothing of a TPM that is volatile": {&v1.TPMDevice{}, nil, nil},
		"a TPM":                             {&v1.TPMDevice{Persistent: new(true)}, nil, &State{}},
		"variables":                         {nil, efi(false), &State{Template: testTemplate}},
		"variables with keys":               {nil, efi(true), &State{Template: machine.VariablesTemplate(&v1.VirtualMachineInstanceSpec{Domain: v1.DomainSpec{Firmware: efi(true)}})}},
		"a TPM beside volatile variables":   {&v1.TPMDevice{Persistent: new(true)}, &v1.Firmware{Bootloader: &v1.Bootloader{EFI: &v1.EFI{}}}, &State{}},
	} {
		instance := vmi()
		instance.Spec.Domain.Devices.TPM, instance.Spec.Domain.Firmware = test.tpm, test.firmware
		plan, err := NewPlan(instance)
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(test.want, plan.State); diff != "" {
			t.Errorf("%s: %s", name, diff)
		}
	}
}

func TestVariablesAreMadeOnceAndNeverAgain(t *testing.T) {
	c, claim := newStateContainer(t)
	plan := Plan{State: &State{Template: testTemplate}}
	if err := plan.Apply(t.Context(), c.pod); err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(claim, "vm/nvram.fd")
	for path, mode := range map[string]os.FileMode{filepath.Dir(file): 0o700, file: 0o600} {
		if info, err := os.Stat(path); err != nil || info.Mode().Perm() != mode {
			t.Errorf("%s: %v, %v, want the mode %o", path, info, err, mode)
		}
	}
	if err := os.WriteFile(file, []byte("changed!"), 0o600); err != nil {
		t.Fatal(err)
	}
	// A half-made file must neither be taken for the variables nor prevent them.
	if err := os.WriteFile(filepath.Join(claim, "vm/.nvram.fd.XYZ"), []byte("temp"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := plan.Apply(t.Context(), c.pod); err != nil {
		t.Fatal(err)
	}
	if got, err := os.ReadFile(file); err != nil || string(got) != "changed!" {
		t.Errorf("the guest's variables are %q, %v", got, err)
	}
}

func TestAFolderAloneIsMadeForATPM(t *testing.T) {
	c, claim := newStateContainer(t)
	if err := (Plan{State: &State{}}).Apply(t.Context(), c.pod); err != nil {
		t.Fatal(err)
	}
	if entries, err := os.ReadDir(filepath.Join(claim, "vm")); err != nil || len(entries) != 0 {
		t.Errorf("it holds %v, %v", entries, err)
	}
}

func TestAHostileStateIsRefused(t *testing.T) {
	write := func(size int) func(string) error {
		return func(path string) error { return os.WriteFile(path, make([]byte, size), 0o600) }
	}
	for name, test := range map[string]struct {
		at, says string
		plant    func(path string) error
	}{
		"the folder is a symlink":   {"vm", "too many levels of symbolic links", func(path string) error { return os.Symlink("/usr", path) }},
		"the folder is a file":      {"vm", "not a directory", write(0)},
		"the file is a symlink":     {"vm/nvram.fd", "too many levels of symbolic links", func(path string) error { return os.Symlink(testTemplate, path) }},
		"the file leads nowhere":    {"vm/nvram.fd", "too many levels of symbolic links", func(path string) error { return os.Symlink("nowhere", path) }},
		"the file is a FIFO":        {"vm/nvram.fd", "it is no regular file", func(path string) error { return unix.Mkfifo(path, 0o600) }},
		"the file is a folder":      {"vm/nvram.fd", "it is no regular file", func(path string) error { return os.Mkdir(path, 0o700) }},
		"the file is too small":     {"vm/nvram.fd", "have 7 bytes instead of the 8 that the firmware takes", write(7)},
		"the file is larger by one": {"vm/nvram.fd", "have 9 bytes instead of the 8 that the firmware takes", write(9)},
		"the file is endless": {"vm/nvram.fd", "have 1099511627776 bytes instead of the 8", func(path string) error {
			if err := write(0)(path); err != nil {
				return err
			}
			return os.Truncate(path, 1<<40)
		}},
	} {
		t.Run(name, func(t *testing.T) {
			c, claim := newStateContainer(t)
			if filepath.Dir(test.at) != "." {
				c.mkdir(t, "/run/kubevirt-state/vm")
			}
			if err := test.plant(filepath.Join(claim, test.at)); err != nil {
				t.Fatal(err)
			}
			err := (Plan{State: &State{Template: testTemplate}}).Apply(t.Context(), c.pod)
			if err == nil || !strings.HasPrefix(err.Error(), "preparing what is kept of the VM: ") || !strings.Contains(err.Error(), test.says) {
				t.Errorf("the error is %v, want one that says %q", err, test.says)
			}
		})
	}
}

func TestWithoutItsClaimNothingIsMade(t *testing.T) {
	c := newContainer(t)
	if err := (Plan{State: &State{}}).Apply(t.Context(), c.pod); err == nil || !strings.Contains(err.Error(), layout.StateDir) {
		t.Errorf("the error is %v", err)
	}
}

func TestWhichTPMIsTheGuests(t *testing.T) {
	c, _ := newStateContainer(t)
	if _, err := CurrentTPM(c.pod); err == nil {
		t.Error("there is one before there is a folder")
	}
	if err := (Plan{State: &State{}}).Apply(t.Context(), c.pod); err != nil {
		t.Fatal(err)
	}
	current := func(want string) {
		t.Helper()
		if got, err := CurrentTPM(c.pod); err != nil || got != want {
			t.Errorf("the guest's TPM is in %q, %v, want %q", got, err, want)
		}
	}
	current("tpm")
	for _, migration := range []string{"5d307ca9-b3ef-428c-8861-06e72d69f223", "1"} {
		if err := SetCurrentTPM(c.pod, layout.IncomingTPM(migration)); err != nil {
			t.Fatal(err)
		}
		current("tpm-" + migration)
	}
}

func TestAHostileRecordNamesNoTPM(t *testing.T) {
	c, claim := newStateContainer(t)
	c.mkdir(t, "/run/kubevirt-state/vm")
	file := filepath.Join(claim, "vm", layout.CurrentTPM)
	for name, plant := range map[string]func() error{
		"another folder":  func() error { return os.WriteFile(file, []byte("../tpm"), 0o600) },
		"a folder within": func() error { return os.WriteFile(file, []byte("tpm-/x"), 0o600) },
		"nothing":         func() error { return os.WriteFile(file, nil, 0o600) },
		"a line too many": func() error { return os.WriteFile(file, []byte("tpm-1\n"), 0o600) },
		"a long name":     func() error { return os.WriteFile(file, []byte("tpm-"+strings.Repeat("a", 41)), 0o600) },
		"too much":        func() error { return os.WriteFile(file, make([]byte, maxTPMFolder+1), 0o600) },
		"a FIFO":          func() error { return unix.Mkfifo(file, 0o600) },
		"a link":          func() error { return os.Symlink("nvram.fd", file) },
	} {
		if err := errors.Join(os.RemoveAll(file), plant()); err != nil {
			t.Fatal(err)
		}
		if got, err := CurrentTPM(c.pod); err == nil {
			t.Errorf("%s is taken for %q", name, got)
		}
	}
	// The recorded state must replace the present one.
	if err := SetCurrentTPM(c.pod, "tpm-2"); err != nil {
		t.Fatal(err)
	}
	if got, err := CurrentTPM(c.pod); err != nil || got != "tpm-2" {
		t.Errorf("the guest's TPM is in %q, %v", got, err)
	}
}

func TestARecordIsNeitherReadNorWrittenElsewhere(t *testing.T) {
	c, claim := newStateContainer(t)
	c.mkdir(t, "/usr/elsewhere")
	// The folder may be a link to one of the pod's volumes that belongs to the node.
	if err := os.Symlink("/usr/elsewhere", filepath.Join(claim, "vm")); err != nil {
		t.Fatal(err)
	}
	if got, err := CurrentTPM(c.pod); err == nil {
		t.Errorf("a folder elsewhere says %q", got)
	}
	if err := SetCurrentTPM(c.pod, "tpm-3"); err == nil {
		t.Error("something was written elsewhere")
	}
}
