//go:build apiserver

package api

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	v1 "kubevirt.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"drydock.dev/drydock/internal/api/admission"
	"drydock.dev/drydock/internal/rules/hotplug/hotplugspec"
)

// volumes plugs claims into a stopped VM and into VMIs, and tries impossible ones.
func (w *world) volumes(t *testing.T) {
	for _, name := range []string{"data", "more", "taken"} {
		must(t, w.admin.Create(t.Context(), &corev1.PersistentVolumeClaim{
			ObjectMeta: metav1.ObjectMeta{Namespace: w.namespace, Name: name},
			Spec: corev1.PersistentVolumeClaimSpec{
				AccessModes: []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce},
				Resources:   corev1.VolumeResourceRequirements{Requests: corev1.ResourceList{corev1.ResourceStorage: quantity("1Gi")}},
			},
		}))
	}
	w.volumesOfAVM(t)
	w.volumesOfAVMI(t)
	w.volumesThatAreHeld(t)
}

func (w *world) volumesThatAreHeld(t *testing.T) {
	vm := w.vm("held")
	must(t, w.admin.Create(t.Context(), vm))
	controller := w.component(admission.ControllerServiceAccount)
	for status, by := range map[string]string{
		`{"snapshotInProgress":"nightly","restoreInProgress":null}`: "VirtualMachineSnapshot nightly",
		`{"snapshotInProgress":null,"restoreInProgress":"back"}`:    "VirtualMachineRestore back",
	} {
		must(t, controller.Status().Patch(t.Context(), vm, client.RawPatch(types.MergePatchType, []byte(`{"status":`+status+`}`))))
		for verb, body := range map[string]string{"addvolume": addition("data", ""), "removevolume": `{"name":"root"}`} {
			_, err := w.call(http.MethodPut, w.subresource("virtualmachines", "held", verb), body)
			expect(t, err, "its disks are needed as they are by the "+by)
		}
	}
}

func (w *world) volumesOfAVM(t *testing.T) {
	must(t, w.admin.Create(t.Context(), w.vm("stopped")))
	path := func(verb string) string { return w.subresource("virtualmachines", "stopped", verb) }
	_, err := w.call(http.MethodPut, path("addvolume"), addition("data", `"dryRun":["All"],`))
	must(t, err)
	if n := len(w.readVM(t, "stopped").Spec.Template.Spec.Volumes); n != 1 {
		t.Errorf("after a dry run the template has %d volumes", n)
	}
	_, err = w.call(http.MethodPut, path("addvolume"),
		`{"name":"data","disk":{"lun":{"bus":"scsi","reservation":true}},"volumeSource":{"persistentVolumeClaim":{"claimName":"data"}}}`)
	expect(t, err, "spec.template.spec.domain.devices.disks[0].lun.reservation: Forbidden")
	_, err = w.call(http.MethodPut, path("addvolume"), addition("data", ""))
	must(t, err)
	spec := &w.readVM(t, "stopped").Spec.Template.Spec
	if v := spec.Volumes[len(spec.Volumes)-1]; v.Name != "data" || v.PersistentVolumeClaim == nil || !v.PersistentVolumeClaim.Hotpluggable {
		t.Errorf("the volume is %+v", v)
	}
	if d := spec.Domain.Devices.Disks[len(spec.Domain.Devices.Disks)-1]; d.Name != "data" || d.Disk == nil || d.Disk.Bus != v1.DiskBusSCSI {
		t.Errorf("the disk is %+v", d)
	}
	_, err = w.call(http.MethodPut, path("addvolume"), addition("data", ""))
	expect(t, err, "volume with that name already exists")
	_, err = w.call(http.MethodPut, path("removevolume"), `{"name":"data"}`)
	must(t, err)
	if n := len(w.readVM(t, "stopped").Spec.Template.Spec.Volumes); n != 1 {
		t.Errorf("after the removal the template has %d volumes", n)
	}
}

func (w *world) volumesOfAVMI(t *testing.T) {
	other := w.vmi("owner-of-taken")
	other.Spec.Volumes = []v1.Volume{{Name: "taken", VolumeSource: v1.VolumeSource{PersistentVolumeClaim: &v1.PersistentVolumeClaimVolumeSource{
		PersistentVolumeClaimVolumeSource: corev1.PersistentVolumeClaimVolumeSource{ClaimName: "taken"},
	}}}}
	must(t, w.admin.Create(t.Context(), other))
	w.running(t, "plugged")
	path := func(verb string) string { return w.subresource("virtualmachineinstances", "plugged", verb) }
	_, err := w.call(http.MethodPut, path("addvolume"), addition("data", ""))
	must(t, err)
	vmi := &v1.VirtualMachineInstance{}
	must(t, w.admin.Get(t.Context(), client.ObjectKey{Namespace: w.namespace, Name: "plugged"}, vmi))
	if got := vmi.Annotations[hotplugspec.EphemeralAnnotation]; got != `["data"]` {
		t.Errorf("what is the VMI's alone is noted as %q", got)
	}
	for body, want := range map[string]string{
		addition("data", ""):  "Unable to add volume [data] because volume with that name already exists",
		addition("none", ""):  "Unable to add volume [none] because PVC [none] does not exist",
		addition("taken", ""): "Unable to add volume [taken] because PVC [taken] is in use by VirtualMachineInstance [owner-of-taken]",
		strings.Replace(addition("more", ""), "scsi", "sata", 1):                                                               "a hotplugged disk must be on the bus scsi or virtio, not sata",
		strings.Replace(addition("more", ""), `"disk":{"disk"`, `"disk":{"serial":"a b","disk"`, 1):                            "must be made of letters",
		`{"name":"more","volumeSource":{}}`:                                                                                    "AddVolumeOptions requires disk to not be nil",
		`{"name":"more","disk":{},"volumeSource":{"persistentVolumeClaim":{"claimName":"more"},"dataVolume":{"name":"more"}}}`: "requires exactly one of",
	} {
		_, err := w.call(http.MethodPut, path("addvolume"), body)
		expect(t, err, want)
	}
	_, err = w.call(http.MethodPut, path("removevolume"), `{"name":"more"}`)
	expect(t, err, "Unable to remove volume [more] because it does not exist")
	w.forced(t, path("removevolume"))
	must(t, w.admin.Get(t.Context(), client.ObjectKeyFromObject(vmi), vmi))

	migrating := vmi.DeepCopy()
	migrating.Status.MigrationState = &v1.VirtualMachineInstanceMigrationState{MigrationUID: "m"}
	must(t, w.component(admission.HandlerServiceAccount).Patch(t.Context(), migrating, client.MergeFrom(vmi)))
	_, err = w.call(http.MethodPut, path("removevolume"), `{"name":"data"}`)
	expect(t, err, "VMI is migrating")
	_, err = w.call(http.MethodPut, w.subresource("virtualmachineinstances", "owner-of-taken", "addvolume"), addition("more", ""))
	expect(t, err, "VMI is not running")
}

// forced removes volume data from a guest that does not release it.
func (w *world) forced(t *testing.T, path string) {
	t.Helper()
	vmi := &v1.VirtualMachineInstance{}
	is := func(phase v1.VolumePhase) {
		t.Helper()
		must(t, w.admin.Get(t.Context(), client.ObjectKey{Namespace: w.namespace, Name: "plugged"}, vmi))
		changed := vmi.DeepCopy()
		changed.Status.VolumeStatus = []v1.VolumeStatus{{Name: "data", Phase: phase, HotplugVolume: &v1.HotplugVolumeStatus{}}}
		must(t, w.component(admission.HandlerServiceAccount).Patch(t.Context(), changed, client.MergeFrom(vmi)))
	}
	force := func(query string) error {
		_, err := w.call(http.MethodPut, path+query, `{"name":"data"}`)
		return err
	}
	noted := func() string {
		must(t, w.admin.Get(t.Context(), client.ObjectKey{Namespace: w.namespace, Name: "plugged"}, vmi))
		return vmi.Annotations[hotplugspec.ForcedAnnotation]
	}
	is(v1.VolumeReady)
	expect(t, force("?force=true"), "Unable to force out volume [data] because it is not Detaching")
	expect(t, force("?force=perhaps"), "it must be true or false")
	must(t, force("?force=false"))
	is(v1.HotplugVolumeDetaching)
	must(t, force("?force=true"))
	if got := noted(); got != `["data"]` {
		t.Errorf("what is to be forced out is noted as %q", got)
	}
	mine := vmi.DeepCopy()
	delete(mine.Annotations, hotplugspec.ForcedAnnotation)
	expect(t, w.admin.Patch(t.Context(), mine, client.MergeFrom(vmi)), "only Drydock's components keep this record")
	_, err := w.call(http.MethodPut, w.subresource("virtualmachines", "stopped", "removevolume")+"?force=true", `{"name":"data"}`)
	expect(t, err, "force is about the guest that runs")

	_, err = w.call(http.MethodPut, strings.Replace(path, "remove", "add", 1), addition("data", ""))
	must(t, err)
	if got := noted(); got != "" {
		t.Errorf("of a volume that was added again, it is noted that %q is to be forced out", got)
	}
}

// addition is the body of addvolume for a claim with the volume's name.
func addition(name, more string) string {
	return fmt.Sprintf(`{"name":%q,%s"disk":{"disk":{"bus":"scsi"}},"volumeSource":{"persistentVolumeClaim":{"claimName":%q}}}`, name, more, name)
}

func expect(t *testing.T, err error, want string) {
	t.Helper()
	if !strings.Contains(sentence(err), want) {
		t.Errorf("answer is %q, want %q", sentence(err), want)
	}
}

func (w *world) readVM(t *testing.T, name string) *v1.VirtualMachine {
	t.Helper()
	text, err := w.call(http.MethodGet, fmt.Sprintf("/apis/kubevirt.io/v1/namespaces/%s/virtualmachines/%s", w.namespace, name), "")
	must(t, err)
	vm := &v1.VirtualMachine{}
	must(t, json.Unmarshal([]byte(text), vm))
	return vm
}
