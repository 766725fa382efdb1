package launcherpod

import (
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	v1 "kubevirt.io/api/core/v1"

	"drydock.dev/drydock/internal/contracts/layout"
	"drydock.dev/drydock/internal/rules/cluster/clusterconfig"
)

func withConsole(edit func(*v1.Devices)) *v1.VirtualMachineInstance {
	vmi := &v1.VirtualMachineInstance{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "a", UID: "1"}}
	vmi.Spec.Domain.Memory = &v1.Memory{Guest: new(resource.MustParse("128Mi"))}
	edit(&vmi.Spec.Domain.Devices)
	return vmi
}

func TestTheConsoleIsLoggedIfItIsAskedFor(t *testing.T) {
	for name, c := range map[string]struct {
		edit func(*v1.Devices)
		want []string
	}{
		"nothing is said":      {func(*v1.Devices) {}, []string{"compute"}},
		"no":                   {func(d *v1.Devices) { d.LogSerialConsole = new(false) }, []string{"compute"}},
		"yes":                  {func(d *v1.Devices) { d.LogSerialConsole = new(true) }, []string{"compute", "guest-console-log"}},
		"there is no console":  {func(d *v1.Devices) { d.LogSerialConsole, d.AutoattachSerialConsole = new(true), new(false) }, []string{"compute"}},
		"the console is named": {func(d *v1.Devices) { d.LogSerialConsole, d.AutoattachSerialConsole = new(true), new(true) }, []string{"compute", "guest-console-log"}},
	} {
		pod, err := Render(withConsole(c.edit), clusterconfig.FromKubeVirt(nil), "launcher", Facts{})
		if err != nil {
			t.Fatal(err)
		}
		var names []string
		for _, container := range slices.Concat(pod.Spec.Containers, pod.Spec.InitContainers) {
			names = append(names, container.Name)
		}
		if diff := cmp.Diff(c.want, names); diff != "" {
			t.Errorf("%s: %s", name, diff)
		}
		logs := slices.Contains(pod.Spec.Containers[0].Args, "--console-log="+layout.ConsoleLogDir)
		if logs != (len(c.want) == 2) {
			t.Errorf("%s: virt-launcher has %q", name, pod.Spec.Containers[0].Args)
		}
	}
}

func TestTheConsolesContainerSeesNothingOfTheGuestButItsConsole(t *testing.T) {
	pod, err := Render(withConsole(func(d *v1.Devices) { d.LogSerialConsole = new(true) }), clusterconfig.FromKubeVirt(nil), "launcher", Facts{})
	if err != nil {
		t.Fatal(err)
	}
	c := pod.Spec.InitContainers[0]
	if diff := cmp.Diff([]corev1.VolumeMount{{Name: "console-log", MountPath: layout.ConsoleLogDir}}, c.VolumeMounts); diff != "" {
		t.Error(diff)
	}
	s := c.SecurityContext
	if len(c.VolumeDevices) > 0 || len(c.Env) > 0 || !*s.ReadOnlyRootFilesystem || *s.AllowPrivilegeEscalation || s.Capabilities.Drop[0] != "ALL" {
		t.Errorf("%+v", c)
	}
	for name := range c.Resources.Limits {
		if strings.Contains(string(name), "/") {
			t.Errorf("it has the device %s", name)
		}
	}
}

// A container that dies is restarted alone, and neither the guest's start nor its end waits for it.
func TestTheConsolesContainerIsASidecar(t *testing.T) {
	pod, err := Render(withConsole(func(d *v1.Devices) { d.LogSerialConsole = new(true) }), clusterconfig.FromKubeVirt(nil), "launcher", Facts{})
	if err != nil {
		t.Fatal(err)
	}
	c := pod.Spec.InitContainers[0]
	if c.RestartPolicy == nil || *c.RestartPolicy != corev1.ContainerRestartPolicyAlways || pod.Spec.RestartPolicy != corev1.RestartPolicyNever {
		t.Errorf("the policies are %v for the container and %q for the pod", c.RestartPolicy, pod.Spec.RestartPolicy)
	}
	if c.StartupProbe != nil || c.ReadinessProbe != nil || c.LivenessProbe != nil || c.Lifecycle != nil {
		t.Errorf("the guest waits for %+v", c)
	}
}

func TestAGuaranteedGuestStaysGuaranteedBesideItsConsole(t *testing.T) {
	vmi := withConsole(func(d *v1.Devices) { d.LogSerialConsole = new(true) })
	all := corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("1"), corev1.ResourceMemory: resource.MustParse("256Mi")}
	vmi.Spec.Domain.Resources = v1.ResourceRequirements{Requests: all, Limits: all.DeepCopy()}
	pod, err := Render(vmi, clusterconfig.FromKubeVirt(nil), "launcher", Facts{})
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range slices.Concat(pod.Spec.Containers, pod.Spec.InitContainers) {
		if !guaranteed(c.Resources) {
			t.Errorf("%s: %+v", c.Name, c.Resources)
		}
	}
	vmi.Spec.Domain.Resources = v1.ResourceRequirements{}
	if pod, err = Render(vmi, clusterconfig.FromKubeVirt(nil), "launcher", Facts{}); err != nil {
		t.Fatal(err)
	}
	if r := pod.Spec.InitContainers[0].Resources; guaranteed(r) || r.Requests.Memory().String() != "2Mi" || r.Limits.Memory().IsZero() || r.Limits.Cpu().IsZero() {
		t.Errorf("beside another guest: %+v", r)
	}
}

func TestAProvisioningPodRequestsWhatTheLauncherPodDoes(t *testing.T) {
	for name, edit := range map[string]func(*v1.Devices){"no log": func(*v1.Devices) {}, "a log": func(d *v1.Devices) { d.LogSerialConsole = new(true) }} {
		vmi := withConsole(edit)
		launcher, err := Render(vmi, clusterconfig.FromKubeVirt(nil), "launcher", Facts{})
		if err != nil {
			t.Fatal(err)
		}
		provisioning, err := RenderProvisioning(vmi, clusterconfig.FromKubeVirt(nil), "launcher", Facts{})
		if err != nil {
			t.Fatal(err)
		}
		for _, resource := range []corev1.ResourceName{corev1.ResourceCPU, corev1.ResourceMemory} {
			want := launcher.Spec.Containers[0].Resources.Requests[resource].DeepCopy()
			for _, c := range launcher.Spec.InitContainers {
				want.Add(c.Resources.Requests[resource])
			}
			if got := provisioning.Spec.Containers[0].Resources.Requests[resource]; got.Cmp(want) != 0 {
				t.Errorf("%s: %s of %s, want %s", name, resource, got.String(), want.String())
			}
		}
	}
}
