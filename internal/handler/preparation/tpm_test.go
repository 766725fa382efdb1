package preparation

import (
	"os"
	"path/filepath"
	"testing"

	"k8s.io/apimachinery/pkg/types"
	v1 "kubevirt.io/api/core/v1"

	"drydock.dev/drydock/internal/contracts/launch"
	"drydock.dev/drydock/internal/contracts/layout"
	"drydock.dev/drydock/internal/handler/connection"
	"drydock.dev/drydock/internal/handler/podpath"
)

const ours types.UID = "4d5e"

// TestATPMFollowsItsGuest: once the TPM that came with the guest was taken, the next start finds it.
func TestATPMFollowsItsGuest(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("needs root: the record belongs to QEMU's user")
	}
	path := t.TempDir()
	root, err := podpath.OpenRoot(path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(root.Close)
	if err := os.MkdirAll(filepath.Join(path, layout.StateDir, layout.StateFolder), 0o700); err != nil {
		t.Fatal(err)
	}
	d := &Pod{Link: &connection.Link{Peer: &podpath.Peer{Root: root}}}
	vmi := &v1.VirtualMachineInstance{}
	starts := func(incoming types.UID, want *launch.TPM) {
		t.Helper()
		got, err := d.tpm(&vmi.Spec, incoming)
		if err != nil || (got == nil) != (want == nil) || got != nil && *got != *want {
			t.Errorf("virt-launcher is told %+v, %v, want %+v", got, err, want)
		}
	}
	starts("", nil)
	vmi.Spec.Domain.Devices.TPM = &v1.TPMDevice{}
	starts("", &launch.TPM{State: layout.TPMDir()})
	if err := d.UseIncomingTPM(vmi, ours); err != nil {
		t.Fatal(err)
	}
	vmi.Spec.Domain.Devices.TPM.Persistent = new(true)
	first := layout.KeptTPMDir(layout.FirstTPM)
	starts("", &launch.TPM{State: first, Current: layout.FirstTPM})
	next := layout.IncomingTPM(string(ours))
	starts(ours, &launch.TPM{State: layout.KeptTPMDir(next), Current: layout.FirstTPM})
	if err := d.UseIncomingTPM(vmi, ours); err != nil {
		t.Fatal(err)
	}
	starts("", &launch.TPM{State: layout.KeptTPMDir(next), Current: next})
}
