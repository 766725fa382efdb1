//go:build e2e

package e2e

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
	v1 "kubevirt.io/api/core/v1"
	cdiv1 "kubevirt.io/containerized-data-importer-api/pkg/apis/core/v1beta1"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// TestVolumesThatCannotBePluggedAreRefused checks each refusal's message by virtctl and by the API.
func TestVolumesThatCannotBePluggedAreRefused(t *testing.T) {
	t.Parallel()
	onlyInTestAll(t)
	ns := newNamespace(t)
	refusalsStage(t, ns)

	for _, test := range []struct{ args, want string }{
		{"addvolume full --volume-name=none", "volume none is not a DataVolume or PersistentVolumeClaim"},
		{"addvolume full --volume-name=data", "Unable to add volume [data] because volume with that name already exists"},
		{"addvolume full --volume-name=disk0", "Unable to add volume [disk0] because volume with that name already exists"},
		{"addvolume full --volume-name=taken", "Unable to add volume [taken] because PVC [taken] is in use by VirtualMachineInstance [other]"},
		{"addvolume full --volume-name=plugged", "Unable to add volume [plugged] because PVC [plugged] is in use by VirtualMachineInstance [other]"},
		{"addvolume full --volume-name=plugged --persist", "Unable to add volume [plugged] because PVC [plugged] is in use by VirtualMachineInstance [other]"},
		{"addvolume full --volume-name=spare --bus=virtio", "the bus virtio is full"},
		{"addvolume full --volume-name=spare --bus=virtio --persist", "the bus virtio is full"},
		{"addvolume full --volume-name=spare --bus=sata", "sata"},
		{"addvolume full --volume-name=failed", "Unable to add volume [failed] because DataVolume [failed] has failed"},
		{"addvolume full --volume-name=spare --serial=a~b", "must be made of letters, digits"},
		{"addvolume halted --volume-name=spare", "VM halted is not running; --persist changes what it starts with"},
		{"addvolume moving --volume-name=spare", "VMI is migrating"},
		{"addvolume moving --volume-name=spare --persist", "VMI is migrating"},
		{"removevolume moving --volume-name=with-it", "VMI is migrating"},
		{"removevolume full --volume-name=none", "Unable to remove volume [none] because it does not exist"},
		{"removevolume full --volume-name=root", "Unable to remove volume [root] because it is not hotpluggable"},
	} {
		out, err := virtctl(t.Context(), append([]string{"-n", ns}, strings.Fields(test.args)...)...)
		if err == nil || !strings.Contains(out, test.want) {
			t.Errorf("virtctl %s says (error: %v):\n%s\nwant: %s", test.args, err, out, test.want)
		} else {
			t.Logf("virtctl %s: %s", test.args, strings.TrimSpace(out))
		}
	}
	for _, test := range []struct {
		path, name, claim string
		code              int
		want              string
	}{
		{"virtualmachineinstances/full", "new", "none", http.StatusConflict, "PVC [none] does not exist"},
		{"virtualmachineinstances/full", "root", "spare", http.StatusConflict, "volume with that name already exists"},
		{"virtualmachineinstances/full", "again", "data", http.StatusConflict, "data"},
		{"virtualmachineinstances/full", "", "spare", http.StatusBadRequest, "requires name to be set"},
		{"virtualmachineinstances/full", "new", "", http.StatusBadRequest, "requires the name of the claim"},
		{"virtualmachineinstances/full", "New_1", "spare", http.StatusUnprocessableEntity, "New_1"},
		{"virtualmachineinstances/halted", "new", "spare", http.StatusNotFound, "not found"},
		{"virtualmachines/none", "new", "spare", http.StatusNotFound, "not found"},
		{"virtualmachines/moving", "new", "spare", http.StatusConflict, "VMI is migrating"},
	} {
		code, message := putVolume(t, ns, test.path, test.name, test.claim)
		if code != test.code || !strings.Contains(message, test.want) {
			t.Errorf("adding claim %q as %q to %s is answered by %d %q, want %d %q", test.claim, test.name, test.path, code, message, test.code, test.want)
		} else {
			t.Logf("adding claim %q as %q to %s: %d %s", test.claim, test.name, test.path, code, message)
		}
	}

	do(t, ns, "addvolume", "full", "--volume-name=spare", "--dry-run")
	do(t, ns, "addvolume", "halted", "--volume-name=spare", "--persist")
	vm := &v1.VirtualMachine{}
	if err := cluster.client.Get(t.Context(), client.ObjectKey{Namespace: ns, Name: "halted"}, vm); err != nil {
		t.Fatal(err)
	}
	if n := len(vm.Spec.Template.Spec.Volumes); n != 2 {
		t.Errorf("the template of a stopped VM has %d volumes after an addition, want 2", n)
	}
	if volumeStatus(awaitRunning(t, ns, "full"), "spare") != nil {
		t.Error("a dry run has plugged a volume")
	}
}

// full has no room on virtio, other uses the claim that full asks for, moving migrates, halted does not run.
func refusalsStage(t *testing.T, ns string) {
	t.Helper()
	virtio := v1.DiskDevice{Disk: &v1.DiskTarget{Bus: v1.DiskBusVirtio}}
	for _, name := range []string{"data", "taken", "plugged", "spare", "with-it", "virtio-0", "virtio-1", "virtio-2", "virtio-3"} {
		claim(t, ns, name, corev1.PersistentVolumeFilesystem, folderOnNode1(ns, name))
	}
	url, _ := serveImage(t, ns, "not what was promised\n")
	failed := newDataVolume(ns, "failed", "16Mi", fromWeb(url))
	failed.Annotations["cdi.kubevirt.io/storage.import.checksum"] = "sha256:" + strings.Repeat("0", 64)
	create(t, failed)
	other := onNode1(newVMI(ns, "other"))
	addDisk(other, v1.Disk{Name: "taken", DiskDevice: virtio}, claimSource("taken", false))
	create(t, other)
	full := onNode1(newVMI(ns, "full"))
	for i := range 7 {
		addDisk(full, v1.Disk{Name: fmt.Sprint("disk", i), DiskDevice: virtio},
			v1.VolumeSource{EmptyDisk: &v1.EmptyDiskSource{Capacity: resource.MustParse("1Mi")}})
	}
	claim(t, ns, "disk0", corev1.PersistentVolumeFilesystem, folderOnNode1(ns, "disk0"))
	create(t, newVM(full, v1.RunStrategyAlways))
	create(t, newVM(onNode1(newVMI(ns, "moving")), v1.RunStrategyAlways))
	create(t, newVM(newVMI(ns, "halted"), v1.RunStrategyHalted))
	for _, name := range []string{"full", "other", "moving"} {
		awaitRunning(t, ns, name)
	}
	do(t, ns, "addvolume", "full", "--volume-name=data")
	for i := range 4 {
		do(t, ns, "addvolume", "full", fmt.Sprintf("--volume-name=virtio-%d", i), "--bus=virtio")
	}
	do(t, ns, "addvolume", "other", "--volume-name=plugged")
	do(t, ns, "addvolume", "moving", "--volume-name=with-it")
	setMigrating(t, ns, "moving")
	awaitDataVolume(t, ns, "failed", "failure", func(dv *cdiv1.DataVolume) bool { return dv.Status.Phase == cdiv1.Failed })
}

// virt-controller does the same.
func setMigrating(t *testing.T, ns, name string) {
	t.Helper()
	vmi := &v1.VirtualMachineInstance{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: name}}
	patch := client.RawPatch(types.MergePatchType, []byte(`{"status": {"migrationState": {"migrationUid": "made-up", "sourceNode": "node1", "targetNode": "node2"}}}`))
	if err := asController(t).Patch(t.Context(), vmi, patch); err != nil {
		t.Fatalf("saying that %s is migrating: %v", name, err)
	}
}

func putVolume(t *testing.T, ns, path, name, claim string) (code int, message string) {
	t.Helper()
	body, err := json.Marshal(v1.AddVolumeOptions{
		Name: name,
		Disk: &v1.Disk{DiskDevice: v1.DiskDevice{Disk: &v1.DiskTarget{Bus: v1.DiskBusSCSI}}},
		VolumeSource: &v1.HotplugVolumeSource{PersistentVolumeClaim: &v1.PersistentVolumeClaimVolumeSource{
			PersistentVolumeClaimVolumeSource: corev1.PersistentVolumeClaimVolumeSource{ClaimName: claim},
		}},
	})
	if err != nil {
		t.Fatal(err)
	}
	url := cluster.config.Host + "/apis/subresources.kubevirt.io/v1/namespaces/" + ns + "/" + path + "/addvolume"
	request, err := http.NewRequestWithContext(t.Context(), http.MethodPut, url, strings.NewReader(string(body)))
	if err != nil {
		t.Fatal(err)
	}
	c, err := rest.HTTPClientFor(cluster.config)
	if err != nil {
		t.Fatal(err)
	}
	response, err := c.Do(request)
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	answer, err := io.ReadAll(response.Body)
	if err != nil {
		t.Fatal(err)
	}
	var status metav1.Status
	if err := json.Unmarshal(answer, &status); err != nil {
		t.Fatalf("reading the answer %q: %v", answer, err)
	}
	return response.StatusCode, status.Message
}
