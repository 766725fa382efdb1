package hotplugpod

import (
	"flag"
	"os"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation"
	v1 "kubevirt.io/api/core/v1"
	"sigs.k8s.io/yaml"

	"drydock.dev/drydock/internal/rules/cluster/clusterconfig"
	"drydock.dev/drydock/internal/rules/hotplug"
)

var update = flag.Bool("update", false, "write the golden files anew")

func input() Input {
	vmi := &v1.VirtualMachineInstance{ObjectMeta: metav1.ObjectMeta{Name: "vm", Namespace: "ns", UID: "6b5f0b7e"}}
	return Input{
		VMI: vmi,
		Launcher: &corev1.Pod{
			ObjectMeta: metav1.ObjectMeta{Name: "virt-launcher-vm-abcde", UID: "launcher-uid"},
			Spec:       corev1.PodSpec{NodeName: "node-1", PriorityClassName: "high", SchedulerName: "default-scheduler"},
		},
		AttachmentPod: hotplug.AttachmentPod{Name: Prefix(vmi) + "-3", Volumes: []hotplug.Volume{
			{Name: "files", Claim: "claim-a"}, {Name: "device", Claim: "claim-b"},
		}},
		Block:    map[string]bool{"claim-b": true},
		Settings: clusterconfig.FromKubeVirt(nil),
		Image:    "drydock.dev/virt-launcher:test",
	}
}

func TestGolden(t *testing.T) {
	for file, object := range map[string]any{"pod.yaml": Render(input()), "protection.yaml": Protection(input().VMI)} {
		got, err := yaml.Marshal(object)
		if err != nil {
			t.Fatal(err)
		}
		golden := "testdata/" + file
		if *update {
			if err := os.WriteFile(golden, got, 0o644); err != nil {
				t.Fatal(err)
			}
		}
		want, err := os.ReadFile(golden)
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(string(want), string(got)); diff != "" {
			t.Errorf("%s has changed (-want +got; go test -update writes it anew):\n%s", file, diff)
		}
	}
}

func TestTheNamesAreValidAndTheVMIsOwn(t *testing.T) {
	in := input()
	if problems := validation.IsDNS1123Subdomain(Render(in).Name); len(problems) > 0 {
		t.Errorf("%s: %v", Render(in).Name, problems)
	}
	other := in.VMI.DeepCopy()
	other.UID = "another"
	if Prefix(other) == Prefix(in.VMI) {
		t.Error("two VMIs share their pods' names")
	}
}

// TestAClaimIsMountedAsTheVMIAsks: a read-only claim must be mounted so, and another claim with the volume's name must
// not.
func TestAClaimIsMountedAsTheVMIAsks(t *testing.T) {
	in := input()
	source := &v1.PersistentVolumeClaimVolumeSource{Hotpluggable: true}
	source.ReadOnly = true
	in.VMI.Spec.Volumes = []v1.Volume{{Name: "files", VolumeSource: v1.VolumeSource{PersistentVolumeClaim: source}}}
	for claim, want := range map[string]bool{"claim-a": true, "claim-z": false} {
		source.ClaimName = claim
		if got := Render(in).Spec.Volumes[0].PersistentVolumeClaim; got.ReadOnly != want {
			t.Errorf("the VMI asks for reading only of %s; the pod has %+v", claim, got)
		}
	}
}

// TestHowAClaimIsMountedIsTheVolumesOwn: neither another volume on the claim nor a volume without a claim may make it
// read-only.
func TestHowAClaimIsMountedIsTheVolumesOwn(t *testing.T) {
	claim := func(name string, readOnly bool) v1.Volume {
		source := &v1.PersistentVolumeClaimVolumeSource{}
		source.ClaimName, source.ReadOnly = "claim-a", readOnly
		return v1.Volume{Name: name, VolumeSource: v1.VolumeSource{PersistentVolumeClaim: source}}
	}
	for name, volumes := range map[string][]v1.Volume{
		"another volume is on the claim": {claim("other", true), claim("files", false)},
		"the volume is a DataVolume":     {{Name: "files", VolumeSource: v1.VolumeSource{DataVolume: &v1.DataVolumeSource{Name: "claim-a"}}}},
	} {
		in := input()
		in.VMI.Spec.Volumes = volumes
		if got := Render(in).Spec.Volumes[0].PersistentVolumeClaim; got.ReadOnly {
			t.Errorf("%s: the pod has %+v", name, got)
		}
	}
}

// TestItIsKeptFromNoNode: the pod must be able to go to the guest's node.
func TestItIsKeptFromNoNode(t *testing.T) {
	for _, taint := range []corev1.Taint{
		{Key: corev1.TaintNodeUnschedulable, Effect: corev1.TaintEffectNoSchedule},
		{Key: corev1.TaintNodeNotReady, Effect: corev1.TaintEffectNoExecute},
		{Key: "dedicated", Value: "db", Effect: corev1.TaintEffectNoExecute},
	} {
		tolerated := false
		for _, toleration := range Render(input()).Spec.Tolerations {
			tolerated = tolerated || toleration.Operator == corev1.TolerationOpExists && toleration.Key == "" &&
				toleration.Effect == "" && toleration.TolerationSeconds == nil
		}
		if !tolerated {
			t.Errorf("it does not tolerate %v for ever", taint)
		}
	}
}

func TestThePodHasTheContextThatItsLauncherHas(t *testing.T) {
	if got := Render(input()).Spec.SecurityContext.SELinuxOptions; got != nil {
		t.Errorf("on a node without SELinux it has %v", got)
	}
	in := input()
	in.SELinux = &corev1.SELinuxOptions{Type: "container_kvm_t", Level: "s0:c12,c34"}
	pod := Render(in)
	if diff := cmp.Diff(in.SELinux, pod.Spec.SecurityContext.SELinuxOptions); diff != "" {
		t.Error(diff)
	}
	// A container's own options would override the labels of its volumes.
	for _, c := range pod.Spec.Containers {
		if c.SecurityContext.SELinuxOptions != nil {
			t.Errorf("container %s has options of its own: %v", c.Name, c.SecurityContext.SELinuxOptions)
		}
	}
}
