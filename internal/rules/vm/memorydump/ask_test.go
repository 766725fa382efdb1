package memorydump

import (
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	v1 "kubevirt.io/api/core/v1"
)

var now = time.Date(2026, 12, 1, 17, 0, 0, 0, time.UTC)

// asked is a request that is accepted: a guest of 1 GiB, a claim of 2 GiB.
func asked() Asked {
	size := resource.MustParse("1Gi")
	vmi := &v1.VirtualMachineInstance{ObjectMeta: metav1.ObjectMeta{Name: "web", Namespace: "lab"}}
	vmi.Spec.Domain.Memory = &v1.Memory{Guest: &size}
	vmi.Spec.Volumes = []v1.Volume{{Name: "root", VolumeSource: v1.VolumeSource{DataVolume: &v1.DataVolumeSource{Name: "root-disk"}}}}
	vmi.Status.Phase = v1.Running
	claim := &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Name: "dump", Namespace: "lab"}}
	claim.Spec.AccessModes = []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce}
	claim.Spec.Resources.Requests = corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("2Gi")}
	vm := &v1.VirtualMachine{ObjectMeta: metav1.ObjectMeta{Name: "web", Namespace: "lab"}}
	return Asked{VM: vm, VMI: vmi, ClaimName: "dump", Claim: claim}
}

func TestAsk(t *testing.T) {
	block := corev1.PersistentVolumeBlock
	before := func(claim string, phase v1.MemoryDumpPhase) func(*Asked) {
		return func(a *Asked) {
			a.VM.Status.MemoryDumpRequest = &v1.VirtualMachineMemoryDumpRequest{ClaimName: claim, Phase: phase, FileName: new("old"), Message: "old"}
		}
	}
	for name, test := range map[string]struct {
		change func(*Asked)
		want   string // empty for none
	}{
		"the first dump":               {func(*Asked) {}, ""},
		"again after success":          {before("dump", v1.MemoryDumpCompleted), ""},
		"again after failure":          {before("dump", v1.MemoryDumpFailed), ""},
		"while another is in progress": {before("dump", v1.MemoryDumpInProgress), "a memory dump of the VM web to the PVC [dump] is InProgress: wait until it is Completed or Failed"},
		"while another is removed":     {before("dump", v1.MemoryDumpDissociating), "is Dissociating"},
		"to another claim":             {before("first", v1.MemoryDumpCompleted), "the VM web has a memory dump in the PVC [first]: remove that first (virtctl memory-dump remove), or name that claim"},
		"a stopped VM":                 {func(a *Asked) { a.VMI = nil }, "VM is not running"},
		"a VM that starts":             {func(a *Asked) { a.VMI.Status.Phase = v1.Scheduled }, "VM is not running"},
		"a VM that stops":              {func(a *Asked) { a.VMI.DeletionTimestamp = &metav1.Time{Time: now} }, "VM is not running"},
		"a VM that migrates": {func(a *Asked) {
			a.VMI.Status.MigrationState = &v1.VirtualMachineInstanceMigrationState{MigrationUID: "m"}
		}, "the VM is migrating: its memory can be dumped when it has arrived"},
		"a machine without hotplug": {func(a *Asked) { a.VMI.Spec.Domain.Devices.DisableHotplug = true }, "disableHotplug is set"},
		"the claim is still there": {func(a *Asked) {
			a.VMI.Status.VolumeStatus = []v1.VolumeStatus{{Name: "dump", MemoryDumpVolume: &v1.DomainMemoryDumpInfo{}}}
		}, "the PVC [dump] is still being released by the guest: try again"},
		"the claim is a disk":         {func(a *Asked) { a.ClaimName = "root-disk" }, "the volume [root] of the VM has the name or the content of the PVC [root-disk]"},
		"a disk has the claim's name": {func(a *Asked) { a.VMI.Spec.Volumes[0].Name = "dump" }, "the volume [dump] of the VM has the name"},
		"a disk of the claim's name leaves": {func(a *Asked) {
			a.VMI.Status.VolumeStatus = []v1.VolumeStatus{{Name: "dump", Phase: v1.HotplugVolumeDetaching}}
		}, "the volume [dump] is being removed from the VM: try again when it is gone"},
		"a name that no volume can have": {func(a *Asked) { a.ClaimName = "a.b" }, "the name of the PVC [a.b] can't be a volume's"},
		"no claim":                       {func(a *Asked) { a.Claim = nil }, "the PVC [dump] does not exist in the namespace lab: create it (virtctl: --create-claim)"},
		"a claim that goes":              {func(a *Asked) { a.Claim.DeletionTimestamp = &metav1.Time{Time: now} }, "is being deleted"},
		"a claim without a volume":       {func(a *Asked) { a.Claim.Status.Phase = corev1.ClaimLost }, "has lost its persistent volume"},
		"a claim of mode Block":          {func(a *Asked) { a.Claim.Spec.VolumeMode = &block }, "the PVC [dump] has the volume mode Block: a memory dump is a file, and needs a claim of mode Filesystem"},
		"a claim that can only be read": {func(a *Asked) {
			a.Claim.Spec.AccessModes = []corev1.PersistentVolumeAccessMode{corev1.ReadOnlyMany}
		}, "the PVC [dump] can only be read"},
		"a claim of the least size": {func(a *Asked) {
			a.Claim.Spec.Resources.Requests[corev1.ResourceStorage] = resource.MustParse("1124Mi")
		}, ""},
		"a claim that is too small": {func(a *Asked) {
			a.Claim.Spec.Resources.Requests[corev1.ResourceStorage] = resource.MustParse("1123Mi")
		}, "the PVC [dump] has 1123Mi, and a dump of the VM's memory needs 1124Mi: use a larger claim"},
		"a volume that is smaller than the claim": {func(a *Asked) {
			a.Claim.Status.Capacity = corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("1Gi")}
		}, "the PVC [dump] has 1Gi, and"},
	} {
		t.Run(name, func(t *testing.T) {
			a := asked()
			test.change(&a)
			got, err := Ask(a)
			if test.want != "" {
				if err == nil || !strings.Contains(err.Error(), test.want) {
					t.Errorf("it says %v, want %s", err, test.want)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			// Nothing of an earlier dump stays.
			if want := (v1.VirtualMachineMemoryDumpRequest{ClaimName: "dump", Phase: v1.MemoryDumpAssociating}); *got != want {
				t.Errorf("the request is %+v", *got)
			}
		})
	}
}

func TestTheClaimOfARequest(t *testing.T) {
	vm := &v1.VirtualMachine{}
	if _, err := ClaimOf(vm, &v1.VirtualMachineMemoryDumpRequest{}); err == nil || !strings.Contains(err.Error(), "needs the name of a claim") {
		t.Errorf("without a claim it says %v", err)
	}
	vm.Status.MemoryDumpRequest = &v1.VirtualMachineMemoryDumpRequest{ClaimName: "last"}
	for asked, want := range map[string]string{"": "last", "other": "other"} {
		if got, err := ClaimOf(vm, &v1.VirtualMachineMemoryDumpRequest{ClaimName: asked}); err != nil || got != want {
			t.Errorf("asked for %q: %q, %v", asked, got, err)
		}
	}
}

func TestAskRemoval(t *testing.T) {
	vm := &v1.VirtualMachine{ObjectMeta: metav1.ObjectMeta{Name: "web"}}
	if _, err := AskRemoval(vm); err == nil || err.Error() != "the VM web has no memory dump to remove" {
		t.Errorf("without a dump it says %v", err)
	}
	vm.Status.MemoryDumpRequest = &v1.VirtualMachineMemoryDumpRequest{ClaimName: "dump", Phase: v1.MemoryDumpCompleted}
	got, err := AskRemoval(vm)
	if err != nil || !got.Remove || got.Phase != v1.MemoryDumpDissociating || got.ClaimName != "dump" {
		t.Errorf("the request is %+v, %v", got, err)
	}
}

func TestFileNames(t *testing.T) {
	file := FileName("web", "dump", now)
	if file != "web-dump-20261201-170000.000000.memory.dump" {
		t.Errorf("the file is %s", file)
	}
	for name, want := range map[string]bool{
		file: true, Partial(file): true, "disk.img": false, "web-dump-notes.memory.dump": false, "web-dump-20261201-170000.000000.memory": false,
		"other-dump-20261201-170000.000000.memory.dump": false, "web-dump-2-20261201-170000.000000.memory.dump": false,
	} {
		if IsOf("web", "dump", name) != want {
			t.Errorf("%s: want %v", name, want)
		}
	}
	if long := Partial(FileName(strings.Repeat("v", 253), strings.Repeat("c", 253), now)); len(long) > 255 {
		t.Errorf("a name has %d bytes", len(long))
	}
}
