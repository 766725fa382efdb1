//go:build e2e

package e2e

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	v1 "kubevirt.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

const claimSize = 64 << 20

// TestEveryKindOfVolume gives a guest a disk of each kind that TestGuestSeesTheMachineThatWasAskedFor does not
// have, and reads them in the VM's next instance: persistent data must be there, and ephemeral data must not.
// Only two real guests of one VM show that.
func TestEveryKindOfVolume(t *testing.T) {
	t.Parallel()
	ns := newNamespace(t)
	claim(t, ns, "raw", corev1.PersistentVolumeBlock, blockDevice(t))
	claim(t, ns, "file", corev1.PersistentVolumeFilesystem, folderOnNode1(ns, "file"))
	claim(t, ns, "base", corev1.PersistentVolumeFilesystem, folderWithImage(t, ns, "what-the-base-holds\n"))
	create(t, &corev1.ConfigMap{
		ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: "settings"},
		Data:       map[string]string{"color": "blue"},
	})
	vmi := newVMI(ns, "volumes")
	for name, source := range map[string]v1.VolumeSource{
		"raw": {PersistentVolumeClaim: &v1.PersistentVolumeClaimVolumeSource{
			PersistentVolumeClaimVolumeSource: corev1.PersistentVolumeClaimVolumeSource{ClaimName: "raw"},
		}},
		"file": {PersistentVolumeClaim: &v1.PersistentVolumeClaimVolumeSource{
			PersistentVolumeClaimVolumeSource: corev1.PersistentVolumeClaimVolumeSource{ClaimName: "file"},
		}},
		"base": {Ephemeral: &v1.EphemeralVolumeSource{
			PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: "base"},
		}},
		"host": {HostDisk: &v1.HostDisk{
			Path: "/srv/" + ns + "/host.img", Type: v1.HostDiskExistsOrCreate, Capacity: resource.MustParse("64Mi"),
		}},
		"config":  {ConfigMap: &v1.ConfigMapVolumeSource{LocalObjectReference: corev1.LocalObjectReference{Name: "settings"}}},
		"figures": {DownwardMetrics: &v1.DownwardMetricsVolumeSource{}},
		"drive":   {CloudInitConfigDrive: &v1.CloudInitConfigDriveSource{UserData: "#cloud-config\nhostname: named-by-the-drive\n"}},
	} {
		addDisk(vmi, v1.Disk{
			Name: name, Serial: strings.ToUpper(name),
			DiskDevice: v1.DiskDevice{Disk: &v1.DiskTarget{Bus: v1.DiskBusVirtio}},
		}, source)
	}
	vmi.Spec.Domain.Devices.DownwardMetrics = &v1.DownwardMetrics{}
	vm := newVM(vmi, v1.RunStrategyAlways)
	createWithWhatIsOfNodes(t, vm)
	awaitPrintable(t, ns, "volumes", v1.VirtualMachineStatusRunning)
	first := login(t, ns, "volumes")
	uuid, mac := first.run("guestinfo uuid"), first.run("cat /sys/class/net/eth0/address")
	first.sees("hostname", "hostname", "named-by-the-drive")
	first.run("mkdir -p /tmp/config && mount -o ro " + first.device("CONFIG") + " /tmp/config")
	first.sees("setting", "cat /tmp/config/color", "blue")
	for _, serial := range []string{"RAW", "FILE", "BASE", "HOST"} {
		if bytes := first.diskBySerial(serial).bytes; bytes != claimSize {
			t.Errorf("disk %s has %d bytes in the guest, want %d", serial, bytes, claimSize)
		}
		first.run("echo written-to-" + serial + " | dd of=" + first.device(serial) + " conv=fsync")
	}
	first.sees("the disk with figures of the host", "head -c 4 "+first.device("FIGURES"), "mvbd")
	first.sees("the host's name, by the port", `p=/dev/$(basename $(dirname $(grep -lx org.github.vhostmd.1 /sys/class/virtio-ports/*/name))); `+
		`exec 3<>$p; printf 'GET /metrics/XML\n\n' >&3; while read -r line <&3 && [ -n "$line" ]; do echo "$line"; done | grep -A 1 '>HostName<' | tail -n 1; exec 3>&-`,
		"<value>node1</value>")
	restartAndAwait(t, ns, "volumes")

	second := login(t, ns, "volumes")
	second.sees("what was written to the block device", "head -n 1 "+second.device("RAW"), "written-to-RAW")
	second.sees("what was written to the file", "head -n 1 "+second.device("FILE"), "written-to-FILE")
	second.sees("the same UUID", "guestinfo uuid", uuid)
	second.sees("the same MAC address", "cat /sys/class/net/eth0/address", mac)
	second.sees("what was written to the host's disk", "head -n 1 "+second.device("HOST"), "written-to-HOST")
	second.sees("the base as it was, under the ephemeral disk", "head -n 1 "+second.device("BASE"), "what-the-base-holds")
}

// createWithWhatIsOfNodes enables the feature gates for host disks and for figures of the host until the test ends, and
// creates the VM; without the gates it must be refused.
func createWithWhatIsOfNodes(t *testing.T, vm *v1.VirtualMachine) {
	t.Helper()
	dryRun := func(ctx context.Context) error { return cluster.client.Create(ctx, vm.DeepCopy(), client.DryRunAll) }
	for _, gate := range []string{"HostDisk", "DownwardMetrics"} {
		if err := dryRun(t.Context()); err == nil || !strings.Contains(err.Error(), gate+" feature gate is not enabled") {
			t.Errorf("without the gate %s: %v", gate, err)
		}
	}
	kv := kubeVirt()
	gates := func(ctx context.Context, value string) {
		t.Helper()
		patch := `{"spec":{"configuration":{"developerConfiguration":{"featureGates":` + value + `}}}}`
		if err := cluster.client.Patch(ctx, kv, client.RawPatch(types.MergePatchType, []byte(patch))); err != nil {
			t.Fatalf("setting the feature gates to %s: %v", value, err)
		}
	}
	gates(t.Context(), `["HostDisk", "DownwardMetrics"]`)
	t.Cleanup(func() { gates(context.WithoutCancel(t.Context()), "null") })
	// One of the two virt-apis sees the change before the other.
	eventually(t, "virt-api to allow what is of nodes", func(ctx context.Context) error { return cluster.client.Create(ctx, vm) })
}

func (g *guest) device(serial string) string {
	g.t.Helper()
	return "/dev/" + g.diskBySerial(serial).name
}

func folderOnNode1(namespace, name string) corev1.PersistentVolumeSource {
	return corev1.PersistentVolumeSource{HostPath: &corev1.HostPathVolumeSource{
		Path: "/srv/" + namespace + "-" + name, Type: new(corev1.HostPathDirectoryOrCreate),
	}}
}

// folderWithImage returns storage in a folder that all nodes share, with a disk image that begins with the given text.
func folderWithImage(t *testing.T, name, text string) corev1.PersistentVolumeSource {
	t.Helper()
	folder := filepath.Join(os.Getenv("DRYDOCK_DIR"), "shared", name)
	if err := os.Mkdir(folder, 0o755); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(folder) }) // the cluster's folder is removed as a whole
	image := filepath.Join(folder, "disk.img")
	if err := os.WriteFile(image, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
	if err := os.Truncate(image, claimSize); err != nil {
		t.Fatal(err)
	}
	return corev1.PersistentVolumeSource{HostPath: &corev1.HostPathVolumeSource{Path: "/srv/shared/" + name}}
}

// blockDevice returns storage on a block device of this machine, and so of its nodes.
func blockDevice(t *testing.T) corev1.PersistentVolumeSource {
	t.Helper()
	file := filepath.Join(t.TempDir(), "block.img")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Truncate(file, claimSize); err != nil {
		t.Fatal(err)
	}
	out, err := exec.Command("losetup", "--find", "--show", file).Output()
	if err != nil {
		t.Fatalf("making a block device of %s: %v", file, err)
	}
	device := strings.TrimSpace(string(out))
	t.Cleanup(func() {
		if out, err := exec.Command("losetup", "--detach", device).CombinedOutput(); err != nil {
			t.Errorf("detaching %s: %v\n%s", device, err, out)
		}
	})
	return corev1.PersistentVolumeSource{Local: &corev1.LocalVolumeSource{Path: device}}
}

func claim(t *testing.T, namespace, name string, mode corev1.PersistentVolumeMode, source corev1.PersistentVolumeSource) {
	t.Helper()
	claimOfSize(t, namespace, name, mode, source, claimSize)
}

func claimOfSize(t *testing.T, namespace, name string, mode corev1.PersistentVolumeMode, source corev1.PersistentVolumeSource, size int64) {
	t.Helper()
	capacity := corev1.ResourceList{corev1.ResourceStorage: *resource.NewQuantity(size, resource.BinarySI)}
	modes := []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce}
	volume := &corev1.PersistentVolume{
		ObjectMeta: metav1.ObjectMeta{Name: namespace + "-" + name},
		Spec: corev1.PersistentVolumeSpec{
			Capacity:               capacity,
			AccessModes:            modes,
			VolumeMode:             &mode,
			PersistentVolumeSource: source,
			NodeAffinity: &corev1.VolumeNodeAffinity{Required: &corev1.NodeSelector{NodeSelectorTerms: []corev1.NodeSelectorTerm{{
				MatchExpressions: []corev1.NodeSelectorRequirement{{Key: corev1.LabelHostname, Operator: corev1.NodeSelectorOpIn, Values: []string{"node1"}}},
			}}}},
			ClaimRef: &corev1.ObjectReference{Namespace: namespace, Name: name},
		},
	}
	create(t, volume)
	t.Cleanup(func() { deleteObject(t, volume) })
	create(t, &corev1.PersistentVolumeClaim{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name},
		Spec: corev1.PersistentVolumeClaimSpec{
			StorageClassName: new(""),
			AccessModes:      modes,
			VolumeMode:       &mode,
			Resources:        corev1.VolumeResourceRequirements{Requests: capacity},
		},
	})
}
