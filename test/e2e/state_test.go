//go:build e2e

package e2e

import (
	"context"
	"fmt"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	v1 "kubevirt.io/api/core/v1"
	snapshotv1 "kubevirt.io/api/snapshot/v1beta1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"drydock.dev/drydock/internal/rules/machine/identity"
	"drydock.dev/drydock/internal/rules/machine/stateclaim"
)

// The guest's requests to its TPM (test/machine has the same): define an NV index as the owner, without passwords, and
// read its public part.
const (
	tpmDefine = "tpmsend 8002 0000002d 0000012a 40000001 00000009 40000009 0000 00 0000 0000 000e 01500000 000b 00040004 0000 0008"
	tpmAsk    = "tpmsend 80010000000e0000016901500000 | cut -c13-20"
	tpmKnows  = "00000000"
	// The TPM forgets its owner's data, and everything sealed.
	tpmClear = "tpmsend 8002 0000001b 00000126 4000000a 00000009 40000009 0000 00 0000"
	// tpmLacks is the answer of a TPM without that index.
	tpmLacks = "0000018b"
)

func (g *guest) fillTPM() {
	g.t.Helper()
	g.run(tpmDefine)
	g.knowsTPM()
}

func (g *guest) knowsTPM() {
	g.t.Helper()
	g.sees("what the TPM knows", tpmAsk, tpmKnows)
}

const guestVariable = "/sys/firmware/efi/efivars/Drydock-5d307ca9-b3ef-428c-8861-06e72d69f22"

const (
	mounted = "{ mount | grep -q efivarfs || mount -t efivarfs none /sys/firmware/efi/efivars; } && "
	// guestVariables prints their values.
	guestVariables = mounted + "for v in " + guestVariable + "?; do tail -c 4 $v; done"
	// bootEntry adds an entry to the firmware's boot menu, as an installer does.
	bootEntry = mounted + `printf '\007\000\000\000\001\000\000\000\004\000D\000\000\000\177\377\004\000' > ` +
		"/sys/firmware/efi/efivars/Boot0D0C-8be4df61-93ca-11d2-aa0d-00e098032b8c"
)

func keepingVM(t *testing.T, ns, name string) (*v1.VirtualMachine, *corev1.PersistentVolumeClaim) {
	t.Helper()
	vmi := newVMI(ns, name)
	*vmi.Spec.Domain.Memory.Guest = resource.MustParse("256Mi") // UEFI itself takes its share
	vmi.Spec.Domain.Firmware = &v1.Firmware{Serial: "SN-7", Bootloader: &v1.Bootloader{EFI: &v1.EFI{SecureBoot: new(false), Persistent: new(true)}}}
	vmi.Spec.Domain.Chassis = &v1.Chassis{Serial: "C-8", Asset: "A-9"}
	vmi.Spec.Domain.Devices.TPM = &v1.TPMDevice{Persistent: new(true)}
	vmi.Spec.Domain.Devices.Interfaces = []v1.Interface{{
		Name: "default", InterfaceBindingMethod: v1.InterfaceBindingMethod{Masquerade: &v1.InterfaceMasquerade{}},
	}}
	vmi.Spec.Networks = []v1.Network{*v1.DefaultPodNetwork()}
	addDisk(vmi, v1.Disk{Name: "seed", Serial: "SEED", DiskDevice: v1.DiskDevice{Disk: &v1.DiskTarget{Bus: v1.DiskBusVirtio}}},
		v1.VolumeSource{CloudInitNoCloud: &v1.CloudInitNoCloudSource{UserData: "#cloud-config\n"}})
	vm := newVM(vmi, v1.RunStrategyHalted)
	create(t, vm)
	// virt-controller makes this claim of a class that is known to be shared.
	state := stateOf(vm)
	state.Spec.StorageClassName, state.Spec.AccessModes = new(classShared), []corev1.PersistentVolumeAccessMode{corev1.ReadWriteMany}
	create(t, state)
	return vm, state
}

// TestWhatIsKeptOfAVMOutlivesItsGuests stores data in a guest's UEFI variables and TPM, and must find it after a
// migration and in the VM's next instance. That one changes both, and an earlier snapshot must restore them,
// including a sealed secret. A VM restored elsewhere must have both, and a clone of it neither. The claims must
// go with their VMs. Only a guest sees them.
//
// The identity that the guest sees must stay, and differ in the restored VM and the clone as the table of
// docs/identity.md says.
func TestWhatIsKeptOfAVMOutlivesItsGuests(t *testing.T) {
	t.Parallel()
	ns := newNamespace(t)
	vm, state := keepingVM(t, ns, "keeps")
	g := startAndLogin(t, ns, "keeps")
	g.fillTPM()
	g.run(mounted + "printf '\\007\\000\\000\\000kept' > " + guestVariable + "1")
	g.run(bootEntry)
	knew, sealed := g.run(self), g.run("tpmseal a secret")

	awaitMigratable(t, ns, "keeps")
	migrated(t, ns, "keeps")
	g = login(t, ns, "keeps")
	g.knowsTPM()
	g.run("printf '\\007\\000\\000\\000late' > " + guestVariable + "2") // written by the QEMU of the other node
	g.sees("itself after a migration", self, knew)
	do(t, ns, "stop", "keeps")
	awaitPrintable(t, ns, "keeps", v1.VirtualMachineStatusStopped)
	snapshotOf(t, ns, "keeps", "snap", func(s *snapshotv1.VirtualMachineSnapshotStatus) bool { return s.ReadyToUse != nil && *s.ReadyToUse })
	for _, begun := range []string{"as it was", "from the snapshot"} {
		g = startAndLogin(t, ns, "keeps")
		g.knowsTPM()
		g.sees("its secret, "+begun, "tpmunseal "+sealed, "a secret")
		g.sees("its variables, "+begun, guestVariables, "keptlate")
		g.sees("itself, "+begun, self, knew)
		if begun == "as it was" {
			g.run(tpmClear)
			g.sees("what the TPM has forgotten", tpmAsk, tpmLacks)
			g.run("printf '\\007\\000\\000\\000more' > " + guestVariable + "3")
			restoreTo(t, ns, "keeps", new(snapshotv1.VirtualMachineRestoreStopTarget))
			awaitRestored(t, ns, "keeps")
		}
	}
	eventually(t, "the one claim that was restored", func(context.Context) error {
		if made := claimsIn(t, ns); len(made) != 1 || made[0].Name != state.Name || made[0].UID == state.UID {
			return fmt.Errorf("after a migration, a restart and a restore the claims are %+v", made)
		}
		return nil
	})
	areMadeOf(t, ns, knew, sealed)

	for _, name := range []string{vm.Name, "copy", "twin"} {
		deleteObject(t, &v1.VirtualMachine{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: name}})
	}
	eventually(t, "the state to go with its VM", func(context.Context) error {
		if left := claimsIn(t, ns); len(left) > 0 {
			return fmt.Errorf("there is %s", left[0].Name)
		}
		return nil
	})
}

// areMadeOf restores the snapshot to a VM "copy", and makes a clone "twin" of it.
func areMadeOf(t *testing.T, ns, knew, sealed string) {
	t.Helper()
	restoreTo(t, ns, "copy", nil)
	cloneOfSnapshot(t, ns, "twin")
	do(t, ns, "start", "twin")
	awaitRestored(t, ns, "copy")
	restored := startAndLogin(t, ns, "copy")
	restored.sees("the secret of the VM that it was restored of", "tpmunseal "+sealed, "a secret")
	restored.sees("variables", guestVariables, "keptlate")
	differsByTheTable(t, identity.RestoreToNew, knew, restored.run(self))
	twin := login(t, ns, "twin")
	if out, err := twin.try("tpmunseal " + sealed); err == nil || !strings.Contains(err.Error(), "the TPM answers") {
		t.Errorf("a clone opens what is sealed by its source's TPM: %s, %v", out, err)
	}
	twin.sees("no variables", mounted+"ls "+guestVariable+"? 2>/dev/null || echo none", "none")
	differsByTheTable(t, identity.Clone, knew, twin.run(self))
}

func startAndLogin(t *testing.T, ns, name string) *guest {
	t.Helper()
	do(t, ns, "start", name)
	awaitPrintable(t, ns, name, v1.VirtualMachineStatusRunning)
	return login(t, ns, name)
}

func claimsIn(t *testing.T, ns string) []corev1.PersistentVolumeClaim {
	t.Helper()
	claims := &corev1.PersistentVolumeClaimList{}
	if err := cluster.client.List(t.Context(), claims, client.InNamespace(ns)); err != nil {
		t.Fatalf("listing the claims: %v", err)
	}
	return claims.Items
}

func stateOf(vm *v1.VirtualMachine) *corev1.PersistentVolumeClaim {
	return stateclaim.Claim(stateclaim.Next(vm), "", nil)
}
