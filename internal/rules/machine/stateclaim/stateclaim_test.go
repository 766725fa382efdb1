package stateclaim

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	v1 "kubevirt.io/api/core/v1"
	cdiv1 "kubevirt.io/containerized-data-importer-api/pkg/apis/core/v1beta1"
)

func ofVM(edit ...func(*v1.VirtualMachineInstance)) *v1.VirtualMachineInstance {
	vm := &v1.VirtualMachine{ObjectMeta: metav1.ObjectMeta{Name: "web", UID: "vm-uid"}}
	vmi := &v1.VirtualMachineInstance{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "web", UID: "vmi-uid",
		OwnerReferences: []metav1.OwnerReference{*metav1.NewControllerRef(vm, v1.VirtualMachineGroupVersionKind)}}}
	for _, e := range edit {
		e(vmi)
	}
	return vmi
}

func keepTPM(vmi *v1.VirtualMachineInstance) {
	vmi.Spec.Domain.Devices.TPM = &v1.TPMDevice{Persistent: new(true)}
}

func keepVariables(vmi *v1.VirtualMachineInstance) {
	vmi.Spec.Domain.Firmware = &v1.Firmware{Bootloader: &v1.Bootloader{EFI: &v1.EFI{Persistent: new(true)}}}
}

func alone(vmi *v1.VirtualMachineInstance) { vmi.OwnerReferences = nil }

func inReplicaSet(vmi *v1.VirtualMachineInstance) {
	vmi.OwnerReferences[0].Kind = "VirtualMachineInstanceReplicaSet"
}

func TestWhoseStateIsKept(t *testing.T) {
	off := func(vmi *v1.VirtualMachineInstance) { vmi.Spec.Domain.Devices.TPM.Enabled = new(false) }
	for name, test := range map[string]struct {
		edits []func(*v1.VirtualMachineInstance)
		claim string
	}{
		"nobody's by default": {nil, ""},
		"a TPM's":             {[]func(*v1.VirtualMachineInstance){keepTPM}, "persistent-state-for-web-tksfspz76d"},
		"that of no TPM":      {[]func(*v1.VirtualMachineInstance){keepTPM, off}, ""},
		"the firmware's":      {[]func(*v1.VirtualMachineInstance){keepVariables}, "persistent-state-for-web-tksfspz76d"},
		"both, on one claim":  {[]func(*v1.VirtualMachineInstance){keepVariables, keepTPM}, "persistent-state-for-web-tksfspz76d"},
		"that of no VM":       {[]func(*v1.VirtualMachineInstance){keepTPM, alone}, "persistent-state-for-web-khhf2psnde"},
		"that of one of many": {[]func(*v1.VirtualMachineInstance){keepTPM, inReplicaSet}, "persistent-state-for-web-khhf2psnde"},
		"one with a long name": {[]func(*v1.VirtualMachineInstance){keepTPM, func(vmi *v1.VirtualMachineInstance) {
			vmi.OwnerReferences[0].Name = strings.Repeat("n", 31) + "more"
		}}, "persistent-state-for-" + strings.Repeat("n", 31) + "-tksfspz76d"},
	} {
		if got := ClaimName(ofVM(test.edits...)); got != test.claim {
			t.Errorf("%s: the claim is %q, want %q", name, got, test.claim)
		}
	}
}

func TestTheClaim(t *testing.T) {
	got := Claim(ofVM(keepTPM), "fast", nil)
	want := &corev1.PersistentVolumeClaim{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: "shop", Name: "persistent-state-for-web-tksfspz76d", Labels: map[string]string{"persistent-state-for": "web"},
			OwnerReferences: []metav1.OwnerReference{{APIVersion: v1.GroupVersion.String(), Kind: "VirtualMachine", Name: "web", UID: "vm-uid",
				Controller: new(true), BlockOwnerDeletion: new(true)}},
		},
		Spec: corev1.PersistentVolumeClaimSpec{
			AccessModes: []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce}, VolumeMode: new(corev1.PersistentVolumeFilesystem),
			StorageClassName: new("fast"),
			Resources:        corev1.VolumeResourceRequirements{Requests: corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("10Mi")}},
		},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
	if got := Claim(ofVM(keepTPM), "", nil); got.Spec.StorageClassName != nil {
		t.Errorf("without a class it asks for %q", *got.Spec.StorageClassName)
	}
	if owner := Claim(ofVM(keepTPM, alone), "", nil).OwnerReferences[0]; owner.UID != "vmi-uid" || owner.Kind != "VirtualMachineInstance" {
		t.Errorf("that of a VMI without a VM belongs to %+v", owner)
	}
}

func TestAClaimIsSharedWhereItsClassCanDoSo(t *testing.T) {
	set := func(mode corev1.PersistentVolumeMode, access ...corev1.PersistentVolumeAccessMode) []cdiv1.ClaimPropertySet {
		return []cdiv1.ClaimPropertySet{{AccessModes: access, VolumeMode: &mode}}
	}
	shared := set(corev1.PersistentVolumeFilesystem, corev1.ReadWriteOnce, corev1.ReadWriteMany)
	for name, test := range map[string]struct {
		profile *cdiv1.StorageProfile
		want    corev1.PersistentVolumeAccessMode
	}{
		"nothing is known":        {nil, corev1.ReadWriteOnce},
		"it says nothing":         {&cdiv1.StorageProfile{}, corev1.ReadWriteOnce},
		"it finds so":             {&cdiv1.StorageProfile{Status: cdiv1.StorageProfileStatus{ClaimPropertySets: shared}}, corev1.ReadWriteMany},
		"somebody says so":        {&cdiv1.StorageProfile{Spec: cdiv1.StorageProfileSpec{ClaimPropertySets: shared}}, corev1.ReadWriteMany},
		"somebody says otherwise": {&cdiv1.StorageProfile{Spec: cdiv1.StorageProfileSpec{ClaimPropertySets: set(corev1.PersistentVolumeFilesystem, corev1.ReadWriteOnce)}, Status: cdiv1.StorageProfileStatus{ClaimPropertySets: shared}}, corev1.ReadWriteOnce},
		"with block devices only": {&cdiv1.StorageProfile{Status: cdiv1.StorageProfileStatus{ClaimPropertySets: set(corev1.PersistentVolumeBlock, corev1.ReadWriteMany)}}, corev1.ReadWriteOnce},
		"for nobody knows which":  {&cdiv1.StorageProfile{Status: cdiv1.StorageProfileStatus{ClaimPropertySets: []cdiv1.ClaimPropertySet{{AccessModes: shared[0].AccessModes}}}}, corev1.ReadWriteOnce},
	} {
		if got := Claim(ofVM(keepTPM), "fast", test.profile).Spec.AccessModes; len(got) != 1 || got[0] != test.want {
			t.Errorf("%s: %v, want %v", name, got, test.want)
		}
	}
}

func TestWhoseAClaimOfTheNameIs(t *testing.T) {
	for name, test := range map[string]struct {
		edit func(*corev1.PersistentVolumeClaim)
		want string
	}{
		"the VM's":                                {func(*corev1.PersistentVolumeClaim) {}, ""},
		"the VM's, without its label":             {func(c *corev1.PersistentVolumeClaim) { c.Labels = nil }, ""},
		"the VM's, of a kind that nobody has set": {func(c *corev1.PersistentVolumeClaim) { c.Spec.VolumeMode = nil }, ""},
		"one that somebody made with the label": {func(c *corev1.PersistentVolumeClaim) { c.OwnerReferences = nil },
			"the PVC persistent-state-for-web-tksfspz76d, on which the state of VirtualMachine web is to be kept, belongs to something else: delete it"},
		"that of a VM of the same name": {func(c *corev1.PersistentVolumeClaim) { c.OwnerReferences[0].UID = "other" },
			"the PVC persistent-state-for-web-tksfspz76d, on which the state of VirtualMachine web is to be kept, belongs to something else: delete it"},
		"that of another VM, which names this one too": {func(c *corev1.PersistentVolumeClaim) {
			c.OwnerReferences[0].Controller = nil
			c.OwnerReferences = append(c.OwnerReferences, metav1.OwnerReference{UID: "other", Controller: new(true)})
		}, "the PVC persistent-state-for-web-tksfspz76d, on which the state of VirtualMachine web is to be kept, belongs to something else: delete it"},
		"one that is being deleted": {func(c *corev1.PersistentVolumeClaim) { c.DeletionTimestamp = &metav1.Time{} },
			"the PVC persistent-state-for-web-tksfspz76d, on which the state of VirtualMachine web is kept, is being deleted: a new one is made when it is gone"},
		"a block device": {func(c *corev1.PersistentVolumeClaim) { c.Spec.VolumeMode = new(corev1.PersistentVolumeBlock) },
			"the PVC persistent-state-for-web-tksfspz76d, on which the state of VirtualMachine web is to be kept, is a block device: it must have a file system"},
	} {
		vmi := ofVM(keepTPM)
		claim := Claim(vmi, "", nil)
		test.edit(claim)
		got := ""
		if err := Check(vmi, claim); err != nil {
			got = err.Error()
		}
		if got != test.want {
			t.Errorf("%s: %q, want %q", name, got, test.want)
		}
	}
}

func TestWhatStateKeepsAGuestOnItsNode(t *testing.T) {
	info := func(modes ...corev1.PersistentVolumeAccessMode) *v1.PersistentVolumeClaimInfo {
		return &v1.PersistentVolumeClaimInfo{AccessModes: modes}
	}
	for name, test := range map[string]struct {
		edits []func(*v1.VirtualMachineInstance)
		claim *v1.PersistentVolumeClaimInfo
		want  string
	}{
		"none":              {nil, nil, ""},
		"on a shared claim": {[]func(*v1.VirtualMachineInstance){keepTPM, keepVariables}, info(corev1.ReadWriteOnce, corev1.ReadWriteMany), ""},
		"on a claim for one node": {[]func(*v1.VirtualMachineInstance){keepVariables}, info(corev1.ReadWriteOnce),
			"PVC persistent-state-for-web-tksfspz76d of the VM's state (UEFI variables, TPM) is not shared (using ReadWriteMany access mode)"},
		"on a claim that nobody knows": {[]func(*v1.VirtualMachineInstance){keepTPM}, nil, "PVC persistent-state-for-web-tksfspz76d of the VM's state is not known yet"},
	} {
		if got := Immovable(ofVM(test.edits...), test.claim); got != test.want {
			t.Errorf("%s: %q, want %q", name, got, test.want)
		}
	}
}

func TestAVMsClaimIsThatOfItsNextGuest(t *testing.T) {
	vm := &v1.VirtualMachine{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "web", UID: "vm-uid"}}
	if got := ClaimName(Next(vm)); got != "" {
		t.Errorf("without a template it is %q", got)
	}
	guest := ofVM(keepTPM)
	vm.Spec.Template = &v1.VirtualMachineInstanceTemplateSpec{Spec: guest.Spec}
	if diff := cmp.Diff(Claim(guest, "fast", nil), Claim(Next(vm), "fast", nil)); diff != "" {
		t.Error(diff)
	}
}
