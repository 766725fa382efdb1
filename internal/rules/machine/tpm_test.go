package machine

import (
	"slices"
	"strings"
	"testing"

	v1 "kubevirt.io/api/core/v1"

	"drydock.dev/drydock/internal/contracts/launch"
	"drydock.dev/drydock/internal/contracts/layout"
)

func TestWhoHasATPM(t *testing.T) {
	kept := &launch.TPM{State: layout.StateDir + "/vm/tpm-now", Current: "tpm-now"}
	volatile := &launch.TPM{State: "/var/run/kubevirt-ephemeral-disks/tpm"}
	for name, c := range map[string]struct {
		tpm  *v1.TPMDevice
		want *launch.TPM
	}{
		"not asked for":            {nil, nil},
		"asked for":                {&v1.TPMDevice{}, volatile},
		"switched on":              {&v1.TPMDevice{Enabled: new(true)}, volatile},
		"switched off":             {&v1.TPMDevice{Enabled: new(false)}, nil},
		"kept":                     {&v1.TPMDevice{Persistent: new(true)}, kept},
		"not to be kept":           {&v1.TPMDevice{Persistent: new(false)}, volatile},
		"off, and kept if it were": {&v1.TPMDevice{Enabled: new(false), Persistent: new(true)}, nil},
	} {
		vmi := readVMI(t, "testdata/smallest.yaml")
		vmi.Spec.Domain.Devices.TPM = c.tpm
		got := TPM(&vmi.Spec, "tpm-now", "")
		if (got == nil) != (c.want == nil) || got != nil && *got != *c.want {
			t.Errorf("%s: virt-launcher is told %v, want %v", name, got, c.want)
		}
		m, err := Build(prepared(vmi))
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		has := slices.ContainsFunc(m.Args(), func(arg string) bool { return strings.Contains(arg, "tpm-crb") })
		if KeepsTPM(&vmi.Spec) != (c.want == kept) {
			t.Errorf("%s: it is kept: %v", name, KeepsTPM(&vmi.Spec))
		}
		if has != (c.want != nil) || has != HasTPM(&vmi.Spec) {
			t.Errorf("%s: the machine has a TPM: %v", name, has)
		}
	}
}

func TestATPMWaitsForItsGuestInAFolderOfItsOwn(t *testing.T) {
	vmi := readVMI(t, "testdata/kept-state.yaml")
	want := launch.TPM{State: layout.StateDir + "/vm/tpm-4d5e", Current: "tpm"}
	if got := TPM(&vmi.Spec, "tpm", "4d5e"); got == nil || *got != want {
		t.Errorf("virt-launcher is told %+v, want %+v", got, want)
	}
	vmi.Spec.Domain.Devices.TPM.Persistent = nil
	want = launch.TPM{State: layout.TPMDir()}
	if got := TPM(&vmi.Spec, "", "4d5e"); got == nil || *got != want {
		t.Errorf("for a TPM that is not kept it is told %+v, want %+v", got, want)
	}
}

func TestWhatUEFIVariablesBeginAs(t *testing.T) {
	for name, c := range map[string]struct {
		boot     *v1.Bootloader
		template string
		kept     bool
	}{
		"a BIOS":                {&v1.Bootloader{BIOS: &v1.BIOS{}}, "", false},
		"with Microsoft's keys": {&v1.Bootloader{EFI: &v1.EFI{}}, ovmfSecureVars, false},
		"without keys":          {&v1.Bootloader{EFI: &v1.EFI{SecureBoot: new(false)}}, layout.UEFIVars, false},
		"with keys, and kept":   {&v1.Bootloader{EFI: &v1.EFI{SecureBoot: new(true), Persistent: new(true)}}, ovmfSecureVars, true},
		"not to be kept":        {&v1.Bootloader{EFI: &v1.EFI{Persistent: new(false)}}, ovmfSecureVars, false},
	} {
		vmi := &v1.VirtualMachineInstance{}
		vmi.Spec.Domain.Firmware = &v1.Firmware{Bootloader: c.boot}
		if got := VariablesTemplate(&vmi.Spec); got != c.template {
			t.Errorf("%s: they begin as %q, want %q", name, got, c.template)
		}
		image, has := nvram(vmi)
		want := launch.Image{Name: "firmware/nvram", Source: c.template, Format: "raw", Overlay: "/var/run/kubevirt-ephemeral-disks/nvram.fd"}
		if c.kept {
			want = launch.Image{Name: "firmware/nvram", Root: layout.StateDir, Source: layout.StateDir + "/vm/nvram.fd", Format: "raw"}
		}
		if has != (c.template != "") || has && image != want || KeepsVariables(&vmi.Spec) != c.kept {
			t.Errorf("%s: the image is %+v, %v, want %+v; kept: %v", name, image, has, want, KeepsVariables(&vmi.Spec))
		}
	}
}
