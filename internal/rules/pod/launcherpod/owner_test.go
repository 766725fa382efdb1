package launcherpod

import (
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	v1 "kubevirt.io/api/core/v1"

	"drydock.dev/drydock/internal/contracts/layout"
	"drydock.dev/drydock/internal/rules/cluster/clusterconfig"
	"drydock.dev/drydock/internal/rules/machine/stateclaim"
)

func TestHowAPodIsBoundToItsVMI(t *testing.T) {
	unowned := func(pod *corev1.Pod, _ *v1.VirtualMachineInstance) { pod.OwnerReferences = nil }
	unlabeled := func(pod *corev1.Pod, _ *v1.VirtualMachineInstance) { pod.Labels = nil }
	chosen := func(pod *corev1.Pod, vmi *v1.VirtualMachineInstance) {
		vmi.Status.ActivePods = map[types.UID]string{pod.UID: "node"}
	}
	tests := map[string]struct {
		edits []func(*corev1.Pod, *v1.VirtualMachineInstance)
		want  Bond
	}{
		"as it was made":                               {nil, Whole},
		"without its owner":                            {edits(unowned), Damaged},
		"without its labels":                           {edits(unlabeled), Damaged},
		"with its name alone":                          {edits(unowned, unlabeled), Foreign},
		"named by the VMI's status":                    {edits(chosen), Chosen},
		"named by the VMI's status, with nothing else": {edits(chosen, unowned, unlabeled), Chosen},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			vmi := &v1.VirtualMachineInstance{}
			vmi.Name, vmi.Namespace, vmi.UID = "web", "shop", "1234"
			pod := &corev1.Pod{ObjectMeta: objectMeta(vmi)}
			pod.UID = "pod-uid"
			for _, edit := range test.edits {
				edit(pod, vmi)
			}
			if got := BondOf(pod, vmi); got != test.want {
				t.Errorf("the bond is %d, want %d", got, test.want)
			}
		})
	}
}

func edits(list ...func(*corev1.Pod, *v1.VirtualMachineInstance)) []func(*corev1.Pod, *v1.VirtualMachineInstance) {
	return list
}

func TestWhichClaimsAGuestHasForItself(t *testing.T) {
	disk := func(name string, edit func(*v1.Disk)) v1.Disk {
		d := v1.Disk{Name: name, DiskDevice: v1.DiskDevice{Disk: &v1.DiskTarget{}}}
		edit(&d)
		return d
	}
	claim := func(readOnly bool) *v1.PersistentVolumeClaimVolumeSource {
		out := &v1.PersistentVolumeClaimVolumeSource{}
		out.ClaimName, out.ReadOnly = "claim", readOnly
		return out
	}
	plain := func(*v1.Disk) {}
	shared := func(d *v1.Disk) { d.Shareable = new(true) }
	cd := func(d *v1.Disk) { d.DiskDevice = v1.DiskDevice{CDRom: &v1.CDRomTarget{}} }
	readOnlyDisk := func(d *v1.Disk) { d.Disk.ReadOnly = true }
	readOnlyLUN := func(d *v1.Disk) { d.DiskDevice = v1.DiskDevice{LUN: &v1.LunTarget{ReadOnly: true}} }
	tests := map[string]struct {
		disk                v1.Disk
		source              v1.VolumeSource
		written, exclusives []string
	}{
		"a claim":                       {disk("d", plain), v1.VolumeSource{PersistentVolumeClaim: claim(false)}, []string{"claim"}, []string{"claim"}},
		"a DataVolume":                  {disk("d", plain), v1.VolumeSource{DataVolume: &v1.DataVolumeSource{Name: "dv"}}, []string{"dv"}, []string{"dv"}},
		"a shareable disk":              {disk("d", shared), v1.VolumeSource{PersistentVolumeClaim: claim(false)}, []string{"claim"}, nil},
		"a claim that is only read":     {disk("d", plain), v1.VolumeSource{PersistentVolumeClaim: claim(true)}, nil, nil},
		"a CD-ROM":                      {disk("d", cd), v1.VolumeSource{PersistentVolumeClaim: claim(false)}, nil, nil},
		"a disk that is only read":      {disk("d", readOnlyDisk), v1.VolumeSource{PersistentVolumeClaim: claim(false)}, nil, nil},
		"a LUN that is only read":       {disk("d", readOnlyLUN), v1.VolumeSource{PersistentVolumeClaim: claim(false)}, nil, nil},
		"the base of an ephemeral disk": {disk("d", plain), v1.VolumeSource{Ephemeral: &v1.EphemeralVolumeSource{}}, nil, nil},
		"a volume that is no disk":      {disk("other", plain), v1.VolumeSource{PersistentVolumeClaim: claim(false)}, nil, nil},
		"a hotpluggable volume": {disk("d", plain),
			v1.VolumeSource{DataVolume: &v1.DataVolumeSource{Name: "dv", Hotpluggable: true}}, nil, nil},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			vmi := &v1.VirtualMachineInstance{Spec: v1.VirtualMachineInstanceSpec{Volumes: []v1.Volume{{Name: "d", VolumeSource: test.source}}}}
			vmi.Spec.Domain.Devices.Disks = []v1.Disk{test.disk}
			if got := WrittenClaims(vmi); !slices.Equal(got, test.written) {
				t.Errorf("written to are %q, want %q", got, test.written)
			}
			if got := ExclusiveClaims(vmi); !slices.Equal(got, test.exclusives) {
				t.Errorf("exclusive are %q, want %q", got, test.exclusives)
			}
		})
	}
}

func TestEachOfAGuestsDisksCounts(t *testing.T) {
	vmi := vmiWith(`
domain:
  devices:
    disks:
    - {name: cd, cdrom: {}}
    - {name: shared, disk: {}, shareable: true}
    - {name: own, disk: {}, shareable: false}
    - {name: again, disk: {}}
    - {name: lun, lun: {}}
    - {name: plain}
volumes:
- {name: cd, dataVolume: {name: install}}
- {name: shared, dataVolume: {name: quorum}}
- {name: own, dataVolume: {name: root}}
- {name: again, dataVolume: {name: root}}
- {name: lun, dataVolume: {name: lun}}
- {name: plain, dataVolume: {name: plain}}
`)
	if got, want := WrittenClaims(vmi), []string{"quorum", "root", "lun", "plain"}; !slices.Equal(got, want) {
		t.Errorf("written to are %q, want %q", got, want)
	}
	if got, want := ExclusiveClaims(vmi), []string{"root", "lun", "plain"}; !slices.Equal(got, want) {
		t.Errorf("exclusive are %q, want %q", got, want)
	}
}

func TestTheStateOfAVMIsItsGuestsAlone(t *testing.T) {
	const spec = `{domain: {memory: {guest: 1Gi}, devices: {tpm: {persistent: true}, disks: [{name: root, disk: {}}]}}, volumes: [{name: root, dataVolume: {name: root}}]}`
	vmi := vmiWith(spec)
	claim := stateclaim.ClaimName(vmi)
	want := []string{"root", claim}
	for what, got := range map[string][]string{
		"written to": WrittenClaims(vmi), "exclusive": ExclusiveClaims(vmi), "there at the start": StartClaims(vmi),
	} {
		if !slices.Equal(got, want) {
			t.Errorf("%s are %q, want %q", what, got, want)
		}
	}
	launcher, err := Render(vmi, hardware, "image", Facts{})
	if err != nil {
		t.Fatal(err)
	}
	provisioning, err := RenderProvisioning(vmi, hardware, "image", Facts{})
	if err != nil {
		t.Fatal(err)
	}
	for _, pod := range []*corev1.Pod{launcher, provisioning} {
		if got := claimsIn(pod); !slices.Contains(got, "vm-state="+claim) || len(got) != 2 {
			t.Errorf("%s has the claims %q", pod.Name, got)
		}
	}
	if _, labeled := launcher.Labels[ClaimLabel(claim)]; !labeled {
		t.Errorf("nobody finds the pod by the claim: %v", launcher.Labels)
	}
	// A user who also names the claim as a disk gives it to the pod twice, but to the rules once.
	vmi.Spec.Volumes[0].DataVolume.Name = claim
	if got := ExclusiveClaims(vmi); !slices.Equal(got, []string{claim}) {
		t.Errorf("the claims of a disk on it: %q", got)
	}
	if provisioning, err = RenderProvisioning(vmi, hardware, "image", Facts{}); err != nil || len(claimsIn(provisioning)) != 1 {
		t.Errorf("its provisioning pod: %v, %v", claimsIn(provisioning), err)
	}
}

func TestAPodIsFoundByTheClaimsThatItWritesTo(t *testing.T) {
	vmi := &v1.VirtualMachineInstance{}
	vmi.Name, vmi.Namespace, vmi.UID = "web", "shop", "1234"
	vmi.Spec.Domain.Memory = &v1.Memory{Guest: new(resource.MustParse("64Mi"))}
	long := strings.Repeat("a", 100) + ".b"
	for _, name := range []string{"data", long} {
		vmi.Spec.Volumes = append(vmi.Spec.Volumes, v1.Volume{Name: name, VolumeSource: v1.VolumeSource{DataVolume: &v1.DataVolumeSource{Name: name}}})
		vmi.Spec.Domain.Devices.Disks = append(vmi.Spec.Domain.Devices.Disks, v1.Disk{Name: name})
	}
	// The labels and annotations of a VMI's author about claims must be ignored.
	vmi.Labels = map[string]string{ClaimLabel("another"): "", layout.MaintenanceForLabel: "web", KeptLabel: "", v1.MigrationJobLabel: "m", "app": "web"}
	pod, err := Render(vmi, clusterconfig.FromKubeVirt(nil), "launcher", Facts{})
	if err != nil {
		t.Fatal(err)
	}
	for _, label := range []string{layout.MaintenanceForLabel, KeptLabel, v1.MigrationJobLabel} {
		if _, has := pod.Labels[label]; has || pod.Labels["app"] != "web" {
			t.Errorf("the VMI's author gives its pod the label %s; labels %v", label, pod.Labels)
		}
	}
	for claim, want := range map[string]bool{"data": true, long: true, "another": false} {
		if _, has := pod.Labels[ClaimLabel(claim)]; has != want {
			t.Errorf("the pod has the label of the claim %s: %v, want %v; labels %v", claim, has, want, pod.Labels)
		}
		if _, name, _ := strings.Cut(ClaimLabel(claim), "/"); len(name) > 63 {
			t.Errorf("the label of the claim %s is longer than the API allows", claim)
		}
	}
}

func TestAPodsNameSaysOfWhichVMIsItIs(t *testing.T) {
	named := func(name string, uid types.UID) *v1.VirtualMachineInstance {
		return &v1.VirtualMachineInstance{ObjectMeta: metav1.ObjectMeta{Name: name, UID: uid}}
	}
	long := strings.Repeat("a", 200)
	for what, test := range map[string]struct {
		pod   string
		label string
		vmi   string
		want  bool
	}{
		"of the name":                            {Name(named("web", "1")), "", "web", true},
		"that a guest of the name migrates to":   {TargetName(named("web", "1"), "m"), "", "web", true},
		"of another, which says the name":        {Name(named("db", "1")), "web", "web", false},
		"of a name that has a digest at its end": {Name(named("web-abcde", "1")), "", "web", false},
		"of a name with dots":                    {Name(named("web.a-b", "1")), "", "web.a-b", true},
		"a provisioning pod's":                   {ProvisioningName(named("web", "1")), "web", "web", false},
		"of a long name":                         {Name(named(long, "1")), NameLabelValue(long), long, true},
		"of another long name":                   {Name(named(long+"b", "1")), NameLabelValue(long + "b"), long, false},
	} {
		pod := &metav1.ObjectMeta{Name: test.pod, Labels: map[string]string{NameLabel: test.label}}
		if got := IsNamedFor(pod, test.vmi); got != test.want {
			t.Errorf("a pod's name %s: it is one of %s: %v", what, test.vmi, got)
		}
	}
	if NameStemOf(&metav1.ObjectMeta{Name: "web-12345"}) != "" || NameStem("web") != NameStemOf(&metav1.ObjectMeta{Name: Name(named("web", "1"))}) {
		t.Error("a name's stem is not what the index has")
	}
}

func TestWhichVMIAPodSaysItIsOf(t *testing.T) {
	owned := func(kind string) []metav1.OwnerReference {
		return []metav1.OwnerReference{{Kind: kind, Name: "owner", UID: "o", Controller: new(true)}}
	}
	launcher := map[string]string{v1.AppLabel: "virt-launcher", v1.CreatedByLabel: "1234"}
	says := map[string]string{v1.DomainAnnotation: "said"}
	for name, test := range map[string]struct {
		pod      metav1.ObjectMeta
		vmi      string
		launcher bool
		madeFor  types.UID
	}{
		"a launcher pod":                   {metav1.ObjectMeta{OwnerReferences: owned("VirtualMachineInstance"), Labels: launcher, Annotations: says}, "owner", true, "1234"},
		"a launcher pod without its owner": {metav1.ObjectMeta{Labels: launcher, Annotations: says}, "said", true, "1234"},
		"a launcher pod of another owner":  {metav1.ObjectMeta{OwnerReferences: owned("ReplicaSet"), Labels: launcher, Annotations: says}, "said", true, "1234"},
		"a provisioning pod":               {metav1.ObjectMeta{OwnerReferences: owned("VirtualMachineInstance"), Labels: map[string]string{v1.AppLabel: "virt-launcher"}}, "owner", false, ""},
		"a pod that has lost its labels":   {metav1.ObjectMeta{OwnerReferences: owned("VirtualMachineInstance"), Annotations: says}, "owner", false, ""},
		"another pod, whatever it says":    {metav1.ObjectMeta{OwnerReferences: owned("ReplicaSet"), Labels: map[string]string{v1.AppLabel: "web", v1.CreatedByLabel: "1234"}, Annotations: says}, "", false, "1234"},
		"a pod with nothing":               {metav1.ObjectMeta{}, "", false, ""},
	} {
		pod := &corev1.Pod{ObjectMeta: test.pod}
		if got := VMIOf(pod); got != test.vmi {
			t.Errorf("%s: it is of the VMI %q, want %q", name, got, test.vmi)
		}
		if IsLauncher(pod) != test.launcher || MadeFor(pod) != test.madeFor {
			t.Errorf("%s: a launcher pod: %v, made for %q; want %v, %q", name, IsLauncher(pod), MadeFor(pod), test.launcher, test.madeFor)
		}
	}
}

func TestHowLongAPodMayTakeToEnd(t *testing.T) {
	for name, test := range map[string]struct {
		grace      *int64
		guest, pod int64
	}{
		"the VMI says nothing":     {nil, 30, 45},
		"the VMI says":             {new(int64(600)), 600, 615},
		"the guest gets no moment": {new(int64(0)), 0, 15},
	} {
		vmi := &v1.VirtualMachineInstance{Spec: v1.VirtualMachineInstanceSpec{TerminationGracePeriodSeconds: test.grace}}
		if guest, pod := GracePeriodSeconds(vmi), PodGracePeriodSeconds(vmi); guest != test.guest || pod != test.pod {
			t.Errorf("%s: %d s for the guest, %d s for its pod; want %d, %d", name, guest, pod, test.guest, test.pod)
		}
	}
}
