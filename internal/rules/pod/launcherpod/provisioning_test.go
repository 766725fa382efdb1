package launcherpod

import (
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	v1 "kubevirt.io/api/core/v1"

	"drydock.dev/drydock/internal/contracts/layout"
	"drydock.dev/drydock/internal/rules/storage/volumeclaim"
)

func bothPods(t *testing.T, input string) (launcher, provisioning *corev1.Pod) {
	t.Helper()
	vmi := readVMI(t, input)
	launcher, err := Render(vmi, hardware, "image", Facts{})
	if err != nil {
		t.Fatal(err)
	}
	provisioning, err = RenderProvisioning(vmi, hardware, "image", Facts{})
	if err != nil {
		t.Fatal(err)
	}
	return launcher, provisioning
}

// The scheduler must see no difference between the two, or it binds the claims where the VM does not fit.
func TestTheSchedulerCannotTellAProvisioningPodFromALauncher(t *testing.T) {
	inputs, err := filepath.Glob("testdata/*.vmi.yaml")
	if err != nil || len(inputs) == 0 {
		t.Fatalf("no input: %v", err)
	}
	for _, input := range inputs {
		launcher, provisioning := bothPods(t, input)
		looks := func(p *corev1.Pod) any {
			labels := map[string]string{}
			for key, value := range p.Labels {
				if key != v1.CreatedByLabel && !strings.HasPrefix(key, layout.ClaimLabelPrefix) {
					labels[key] = value
				}
			}
			s := &p.Spec
			return []any{labels, p.OwnerReferences, requestsOf(p), s.Containers[0].Resources.Claims, s.NodeSelector, s.Affinity, s.Tolerations,
				s.TopologySpreadConstraints, s.SchedulerName, s.PriorityClassName, claimsIn(p), s.Containers[0].Image}
		}
		if diff := cmp.Diff(looks(launcher), looks(provisioning)); diff != "" {
			t.Errorf("%s (-launcher +provisioning):\n%s", input, diff)
		}
	}
}

// requestsOf returns the sum of all containers' requests, for which the scheduler needs a place.
func requestsOf(p *corev1.Pod) map[corev1.ResourceName]string {
	out := map[corev1.ResourceName]string{}
	for name, q := range p.Spec.Containers[0].Resources.Requests {
		for _, sidecar := range p.Spec.InitContainers {
			q.Add(sidecar.Resources.Requests[name])
		}
		out[name] = q.String()
	}
	return out
}

func claimsIn(p *corev1.Pod) []string {
	var out []string
	for _, v := range p.Spec.Volumes {
		if v.PersistentVolumeClaim != nil {
			out = append(out, v.Name+"="+v.PersistentVolumeClaim.ClaimName)
		}
	}
	return out
}

func TestAProvisioningPodHoldsNothingButItsPlace(t *testing.T) {
	_, pod := bothPods(t, "testdata/storage.vmi.yaml")
	c := &pod.Spec.Containers[0]
	if len(pod.Spec.Volumes) != len(claimsIn(pod)) || len(claimsIn(pod)) == 0 {
		t.Errorf("it has volumes that are no claims: %+v", pod.Spec.Volumes)
	}
	if len(c.VolumeMounts) != 0 || len(c.VolumeDevices) != 0 || len(pod.Spec.ImagePullSecrets) != 0 || pod.Spec.ServiceAccountName != "" {
		t.Errorf("it mounts or reads something: %+v", pod.Spec)
	}
	if *pod.Spec.TerminationGracePeriodSeconds != 0 {
		t.Error("its end waits for a kubelet that may be lost")
	}
	if diff := cmp.Diff([]string{layout.LauncherBinary, "hold"}, c.Command); diff != "" {
		t.Error(diff)
	}
	if *c.SecurityContext.AllowPrivilegeEscalation || c.SecurityContext.Capabilities.Drop[0] != "ALL" || !*pod.Spec.SecurityContext.RunAsNonRoot {
		t.Error("it has privileges")
	}
}

func TestAProvisioningPodIsTakenForNothingElse(t *testing.T) {
	_, pod := bothPods(t, "testdata/storage.vmi.yaml")
	c := &pod.Spec.Containers[0]
	if pod.Annotations[v1.EphemeralProvisioningObject] != "true" || pod.Labels[v1.CreatedByLabel] != "" {
		t.Errorf("it can be taken for a launcher: %v, %v", pod.Annotations, pod.Labels)
	}
	if len(pod.Spec.ReadinessGates) != 1 || c.ReadinessProbe != nil || len(c.Ports) != 0 || pod.Spec.Hostname != "" {
		t.Error("it can be taken for the guest on the network")
	}
}

func TestAHotpluggableClaimIsNotBoundByTheStart(t *testing.T) {
	vmi := vmiWith(`
domain: {memory: {guest: 1Gi}, devices: {}}
volumes:
- {name: root, dataVolume: {name: root}}
- {name: later, dataVolume: {name: later, hotpluggable: true}}
- {name: again, ephemeral: {persistentVolumeClaim: {claimName: root}}}
`)
	pod, err := RenderProvisioning(vmi, hardware, "image", Facts{})
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]string{"vol-root=root"}, claimsIn(pod)); diff != "" {
		t.Error(diff)
	}
	if diff := cmp.Diff([]string{"root"}, StartClaims(vmi)); diff != "" {
		t.Error(diff)
	}
	if diff := cmp.Diff([]string{"root", "later"}, volumeclaim.Names(vmi.Spec.Volumes)); diff != "" {
		t.Error(diff)
	}
}

// A maintenance pod's provisioning pod must look to the scheduler like the machine's own, have the named claims, and
// trigger only the loop that made it.
func TestAProvisioningPodOfAMaintenancePod(t *testing.T) {
	vmi := readVMI(t, "testdata/storage.vmi.yaml")
	owner := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: vmi.Namespace, Name: "fix", UID: "fix-uid"}}
	own, err := RenderProvisioning(vmi, hardware, "image", Facts{})
	if err != nil {
		t.Fatal(err)
	}
	pod, err := RenderProvisioningFor(owner, []string{"plugged", "scratch"}, vmi, hardware, "image", Facts{})
	if err != nil {
		t.Fatal(err)
	}
	if got := ProvisionedFor(pod); got != vmi.Name || ProvisionedFor(own) != "" || ProvisionedFor(owner) != "" {
		t.Errorf("it is for %q, the VMI's own for %q", got, ProvisionedFor(own))
	}
	if !metav1.IsControlledBy(pod, owner) || pod.Name == own.Name || pod.Name != ProvisioningNameFor(vmi.Name, owner.UID) {
		t.Errorf("it is %s of %+v", pod.Name, pod.OwnerReferences)
	}
	if diff := cmp.Diff([]string{"claim-0=plugged", "claim-1=scratch"}, claimsIn(pod)); diff != "" {
		t.Error(diff)
	}
	pod.Name, pod.OwnerReferences, pod.Spec.Volumes = own.Name, own.OwnerReferences, own.Spec.Volumes
	if diff := cmp.Diff(own, pod); diff != "" {
		t.Errorf("(-the VMI's own +the maintenance pod's):\n%s", diff)
	}
}
