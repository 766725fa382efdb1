//go:build e2e

package e2e

import (
	"encoding/json"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
	v1 "kubevirt.io/api/core/v1"
	snapshotv1 "kubevirt.io/api/snapshot/v1beta1"
	cdiv1 "kubevirt.io/containerized-data-importer-api/pkg/apis/core/v1beta1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"drydock.dev/drydock/internal/rules/machine/firmware"
	"drydock.dev/drydock/internal/rules/machine/identity"
)

// self prints the guest's view of its identity, each line with a key of partOf before it: UUID, SMBIOS fields, PCI
// addresses and devices, disk serials, cloud-init's instance, the firmware's boot entries, the public part of the TPM's
// endorsement key, MAC addresses.
const self = `echo uuid $(guestinfo uuid)
for f in sys_vendor product_name product_version product_serial product_uuid product_sku product_family chassis_serial chassis_asset_tag; do
echo $f $(cat /sys/class/dmi/id/$f); done
for d in /sys/bus/pci/devices/*; do echo pci ${d##*/} $(cat $d/vendor $d/device); done
for d in /sys/block/vd*; do echo disk ${d##*/} $(cat $d/serial); done
mkdir -p /tmp/seed; for d in /dev/vd?; do
mount -r -t iso9660 $d /tmp/seed 2>/dev/null && echo instance $(cat /tmp/seed/meta-data) && umount /tmp/seed; done
V=/sys/firmware/efi/efivars; [ ! -d $V ] || mount | grep -q efivarfs || mount -t efivarfs none $V
[ ! -d $V ] || echo boot $(cat $V/BootOrder-* $V/Boot[0-9A-F][0-9A-F][0-9A-F][0-9A-F]-* | md5sum)
[ ! -e /dev/tpm0 ] || echo tpm $(tpmkey)
for d in /sys/class/net/e*; do echo mac $(cat $d/address); done`

var tpmLine = regexp.MustCompile(`(?m)^tpm .*$`)

var partOf = map[string]identity.Part{
	"uuid": identity.FirmwareUUID, "product_uuid": identity.FirmwareUUID,
	"product_serial": identity.Serial, "chassis_serial": identity.Chassis, "chassis_asset_tag": identity.Chassis,
	"sys_vendor": identity.MachineType, "product_name": identity.MachineType, "product_version": identity.MachineType,
	"product_sku": identity.MachineType, "product_family": identity.MachineType,
	"pci": identity.PCIAddress, "disk": identity.DiskSerial, "instance": identity.CloudInstance, "mac": identity.MasqueradeMAC,
	"boot": identity.KeptVariables, "tpm": identity.KeptTPMState,
}

// differsByTheTable compares the identity that a guest sees with that of a guest made from it. The parts that the table
// of docs/identity.md keeps must be equal, and the renewed ones must differ.
func differsByTheTable(t *testing.T, verb identity.Verb, source, made string) {
	t.Helper()
	was, is := strings.Split(source, "\n"), strings.Split(made, "\n")
	if len(was) != len(is) {
		t.Fatalf("the new guest sees\n%s\nand its source\n%s", made, source)
	}
	for i := range was {
		name, value, _ := strings.Cut(was[i], " ")
		part, known := partOf[name]
		rule := identity.Of(part, verb).Rule
		switch nothing := value == "" || value == "Not Specified"; {
		case !known:
			t.Errorf("the line %q tells nothing of a guest's identity", was[i])
		case (rule == identity.Keep || nothing) != (was[i] == is[i]):
			t.Errorf("%s: the table says %s; the new guest sees %q and its source %q", part, rule, is[i], was[i])
		}
	}
}

// manifest is a VM's manifest as a tool keeps it, to apply it again and again.
type manifest struct {
	t    *testing.T
	vm   *v1.VirtualMachine
	file string
}

func newManifest(t *testing.T, vm *v1.VirtualMachine) *manifest {
	t.Helper()
	text, err := json.Marshal(map[string]any{
		"apiVersion": v1.GroupVersion.String(), "kind": "VirtualMachine",
		"metadata": map[string]any{"namespace": vm.Namespace, "name": vm.Name}, "spec": vm.Spec,
	})
	if err != nil {
		t.Fatal(err)
	}
	m := &manifest{t: t, vm: vm, file: filepath.Join(t.TempDir(), "vm.json")}
	if err := os.WriteFile(m.file, text, 0o600); err != nil {
		t.Fatal(err)
	}
	m.apply("created")
	return m
}

func (m *manifest) apply(want string, flags ...string) {
	m.t.Helper()
	out, err := kubectl(m.t.Context(), append([]string{"apply", "-f", m.file}, flags...)...)
	if err != nil || !strings.Contains(out, want) {
		m.t.Errorf("applying the manifest: %v, %s; want %s", err, out, want)
	}
}

func (m *manifest) now() *v1.VirtualMachine {
	m.t.Helper()
	vm := &v1.VirtualMachine{}
	if err := cluster.client.Get(m.t.Context(), client.ObjectKeyFromObject(m.vm), vm); err != nil {
		m.t.Fatal(err)
	}
	return vm
}

// again applies the manifest again. The specification must be the same as after the first time.
func (m *manifest) again(first *v1.VirtualMachine, want string, flags ...string) {
	m.t.Helper()
	m.apply(want, flags...)
	m.isStill(first)
}

// isStill checks that the VM's specification is the same, on which an apply depends.
func (m *manifest) isStill(first *v1.VirtualMachine) {
	m.t.Helper()
	if vm := m.now(); !equality.Semantic.DeepEqual(vm.Spec, first.Spec) || vm.Generation != first.Generation {
		m.t.Errorf("the specification is\n%+v\nand was\n%+v", vm.Spec, first.Spec)
	}
}

// staysItself restarts a guest that has migrated, and compares its identity with knew. A TPM, if the guest has one, is
// not kept over a restart.
func (m *manifest) staysItself(knew string, first *v1.VirtualMachine) {
	m.t.Helper()
	m.again(first, "unchanged")
	g := login(m.t, m.vm.Namespace, m.vm.Name)
	for _, what := range []string{"a migration", "a restart"} {
		if what == "a restart" {
			restartAndAwait(m.t, m.vm.Namespace, m.vm.Name)
			g = login(m.t, m.vm.Namespace, m.vm.Name)
			knew = tpmLine.ReplaceAllString(knew, "")
		}
		now := g.run(self)
		if what == "a restart" {
			now = tpmLine.ReplaceAllString(now, "")
		}
		if now != knew {
			m.t.Errorf("after %s the guest sees\n%s\nand saw\n%s", what, now, knew)
		}
	}
	m.again(first, "unchanged")
	m.plugsAndIsSnapshotted(g, first)
	for range 2 {
		m.again(first, "serverside-applied", "--server-side", "--field-manager=gitops", "--force-conflicts")
	}
	m.uuidGoesOnlyByApplying(first)
}

// plugsAndIsSnapshotted plugs a disk into the guest only, snapshots the VM, and unplugs the disk.
func (m *manifest) plugsAndIsSnapshotted(g *guest, first *v1.VirtualMachine) {
	m.t.Helper()
	create(m.t, whereItIsUsed(newDataVolume(m.vm.Namespace, "of-a-day", "16Mi", cdiv1.DataVolumeSource{Blank: &cdiv1.DataVolumeBlankImage{}})))
	do(m.t, m.vm.Namespace, "addvolume", m.vm.Name, "--volume-name=of-a-day")
	g.gets("of-a-day")
	m.isStill(first)
	snapshotOf(m.t, m.vm.Namespace, m.vm.Name, "of-a-day", func(s *snapshotv1.VirtualMachineSnapshotStatus) bool {
		return s.Phase == snapshotv1.Succeeded
	})
	m.isStill(first)
	do(m.t, m.vm.Namespace, "removevolume", m.vm.Name, "--volume-name=of-a-day")
	g.loses("of-a-day")
	m.again(first, "unchanged")
}

// uuidGoesOnlyByApplying replaces the VM by the manifest, which has no UUID. It must be refused with a reason.
func (m *manifest) uuidGoesOnlyByApplying(first *v1.VirtualMachine) {
	m.t.Helper()
	out, err := kubectl(m.t.Context(), "replace", "-f", m.file)
	if want := "the firmware UUID can be changed but not removed; the VM has " + string(uuidOf(first)); err == nil || !strings.Contains(out, want) {
		m.t.Errorf("replacing the VM: %v, %s; want %s", err, out, want)
	}
}

func uuidOf(vm *v1.VirtualMachine) types.UID { return vm.Spec.Template.Spec.Domain.Firmware.UUID }

// knowsUUID checks that the guest sees the UUID that admission gave its VM (scenario 7), which is not derived from the
// name.
func (m *manifest) knowsUUID(g *guest) {
	m.t.Helper()
	uuid := uuidOf(m.now())
	if uuid == firmware.Legacy(m.vm.Name) {
		m.t.Errorf("a new VM has the UUID that follows from its name: %s", uuid)
	}
	g.sees("its UUID", "guestinfo uuid", string(uuid))
}

// asController returns a client that acts as virt-controller, whose writes admission does not judge, with the rights of
// more groups.
func asController(t *testing.T, groups ...string) client.Client {
	t.Helper()
	config := rest.CopyConfig(cluster.config)
	config.Impersonate.UserName = "system:serviceaccount:kubevirt:kubevirt-controller"
	config.Impersonate.Groups = []string{"system:serviceaccounts", "system:serviceaccounts:kubevirt", "system:authenticated"}
	config.Impersonate.Groups = append(config.Impersonate.Groups, groups...)
	c, err := client.New(config, client.Options{Scheme: cluster.client.Scheme()})
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// olderThanTheRule removes the UUID from a VM's template, as in VMs that are older than its rule, and waits until
// virt-controller sets the legacy one.
func olderThanTheRule(t *testing.T, ns, name string) {
	t.Helper()
	vm := &v1.VirtualMachine{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: name}}
	patch := client.RawPatch(types.MergePatchType, []byte(`{"spec": {"template": {"spec": {"domain": {"firmware": null}}}}}`))
	if err := asController(t).Patch(t.Context(), vm, patch); err != nil {
		t.Fatalf("taking the UUID out of the VM %s: %v", name, err)
	}
	awaitVM(t, ns, name, "its legacy UUID", func(now *v1.VirtualMachine) bool {
		return now.Generation > vm.Generation && uuidOf(now) == firmware.Legacy(name)
	})
}

// contentHasUUID sets the VM's UUID in the content of a snapshot. null removes it, as in contents that are older than
// the rule.
func contentHasUUID(t *testing.T, ns, name, uuid string) {
	t.Helper()
	s := &snapshotv1.VirtualMachineSnapshot{}
	if err := cluster.client.Get(t.Context(), client.ObjectKey{Namespace: ns, Name: name}, s); err != nil {
		t.Fatal(err)
	}
	content := &snapshotv1.VirtualMachineSnapshotContent{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: *s.Status.VirtualMachineSnapshotContentName}}
	patch := `{"spec": {"source": {"virtualMachine": {"spec": {"template": {"spec": {"domain": {"firmware": {"uuid": ` + uuid + `}}}}}}}}}`
	// virt-controller has no right to change a content after it made it.
	if err := asController(t, "system:masters").Patch(t.Context(), content, client.RawPatch(types.MergePatchType, []byte(patch))); err != nil {
		t.Fatalf("changing the UUID in the content of %s: %v", name, err)
	}
}
