package launcherpod

import (
	"flag"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation"
	v1 "kubevirt.io/api/core/v1"
	"pgregory.net/rapid"
	"sigs.k8s.io/yaml"

	"drydock.dev/drydock/internal/contracts/layout"
	"drydock.dev/drydock/internal/propertytest"
	"drydock.dev/drydock/internal/rules/cluster/clusterconfig"
)

var update = flag.Bool("update", false, "write the golden files anew")

var (
	hardware = clusterconfig.FromKubeVirt(nil)
	emulated = func() clusterconfig.Settings {
		s := clusterconfig.FromKubeVirt(nil)
		s.UseEmulation = true
		return s
	}()
)

// TestGolden renders each testdata/*.vmi.yaml and compares it with the .pod.yaml beside it.
func TestGolden(t *testing.T) {
	inputs, err := filepath.Glob("testdata/*.vmi.yaml")
	if err != nil || len(inputs) == 0 {
		t.Fatalf("no input: %v", err)
	}
	for _, input := range inputs {
		t.Run(filepath.Base(input), func(t *testing.T) {
			settings := hardware
			if strings.Contains(input, "emulated") {
				settings = emulated
			}
			pod, err := Render(readVMI(t, input), settings, "drydock.dev/virt-launcher:test", Facts{BlockClaims: map[string]bool{"block": true}})
			if err != nil {
				t.Fatal(err)
			}
			got, err := yaml.Marshal(pod)
			if err != nil {
				t.Fatal(err)
			}
			golden := strings.TrimSuffix(input, ".vmi.yaml") + ".pod.yaml"
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
				t.Errorf("the pod has changed (-want +got; go test -update writes it anew):\n%s", diff)
			}
		})
	}
}

func readVMI(t *testing.T, path string) *v1.VirtualMachineInstance {
	t.Helper()
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	var vmi v1.VirtualMachineInstance
	if err := yaml.UnmarshalStrict(data, &vmi); err != nil {
		t.Fatalf("reading %s: %v", path, err)
	}
	return &vmi
}

func vmiWith(spec string) *v1.VirtualMachineInstance {
	vmi := &v1.VirtualMachineInstance{}
	vmi.Name, vmi.Namespace, vmi.UID = "vmi", "ns", "uid"
	if err := yaml.UnmarshalStrict([]byte(spec), &vmi.Spec); err != nil {
		panic(err)
	}
	return vmi
}

func TestAVMIMayHaveHooksOfItsOwn(t *testing.T) {
	vmi := &v1.VirtualMachineInstance{ObjectMeta: metav1.ObjectMeta{Name: "vm", Namespace: "lab", Annotations: map[string]string{
		"pre.hook.backup.velero.io/command": "sync",
	}}}
	got := objectMeta(vmi).Annotations
	for name, want := range map[string]string{
		"pre.hook.backup.velero.io/command":    "sync",
		"pre.hook.backup.velero.io/container":  "",
		"post.hook.backup.velero.io/command":   `["/usr/bin/virt-freezer","--unfreeze","--name","vm","--namespace","lab"]`,
		"post.hook.backup.velero.io/container": "compute",
	} {
		if got[name] != want {
			t.Errorf("%s is %q, want %q", name, got[name], want)
		}
	}
}

func TestAVMIMayHaveNoHooks(t *testing.T) {
	for value, want := range map[string]int{"true": 0, "false": 4, "": 4} {
		vmi := &v1.VirtualMachineInstance{ObjectMeta: metav1.ObjectMeta{Annotations: map[string]string{layout.SkipBackupHooksAnnotation: value}}}
		hooks := 0
		for name := range objectMeta(vmi).Annotations {
			if strings.Contains(name, "backup.velero.io/") {
				hooks++
			}
		}
		if hooks != want {
			t.Errorf("kubevirt.io/skip-backup-hooks is %q: there are %d annotations of hooks, want %d", value, hooks, want)
		}
	}
}

func TestNoLauncherHasPrivileges(t *testing.T) {
	inputs, err := filepath.Glob("testdata/*.vmi.yaml")
	if err != nil {
		t.Fatal(err)
	}
	for _, input := range inputs {
		pod, err := Render(readVMI(t, input), hardware, "image", Facts{})
		if err != nil {
			t.Fatal(err)
		}
		if len(pod.Spec.Containers) != 1 {
			t.Errorf("%s: not exactly one container beside the sidecars", input)
		}
		for _, container := range slices.Concat(pod.Spec.InitContainers, pod.Spec.Containers) {
			c := container.SecurityContext
			if *c.AllowPrivilegeEscalation || c.Privileged != nil || len(c.Capabilities.Add) != 0 || c.Capabilities.Drop[0] != "ALL" {
				t.Errorf("%s: the container %s has privileges: %+v", input, container.Name, c)
			}
		}
		if *pod.Spec.AutomountServiceAccountToken || !*pod.Spec.SecurityContext.RunAsNonRoot {
			t.Errorf("%s: the pod has a token or is root", input)
		}
	}
}

func TestMemory(t *testing.T) {
	overhead := func(vmi *v1.VirtualMachineInstance) int64 {
		bytes, err := Overhead(vmi, hardware)
		if err != nil {
			t.Fatal(err)
		}
		return bytes
	}
	gib := int64(1 << 30)
	tests := map[string]struct {
		spec           string
		request, limit func(overhead int64) int64
	}{
		"the guest's memory and the overhead are requested": {
			`domain: {memory: {guest: 1Gi}, devices: {}}`,
			func(o int64) int64 { return gib + o }, nil},
		"a smaller request overcommits the guest, not the overhead": {
			`domain: {memory: {guest: 1Gi}, resources: {requests: {memory: 512Mi}}, devices: {}}`,
			func(o int64) int64 { return gib/2 + o }, nil},
		"a limit grows by the overhead": {
			`domain: {memory: {guest: 1Gi}, resources: {limits: {memory: 2Gi}}, devices: {}}`,
			func(o int64) int64 { return gib + o }, func(o int64) int64 { return 2*gib + o }},
		"the overhead may be left out of the request": {
			`domain: {resources: {requests: {memory: 1Gi}, overcommitGuestOverhead: true, limits: {memory: 1Gi}}, devices: {}}`,
			func(int64) int64 { return gib }, func(o int64) int64 { return gib + o }},
		"with hugepages only the overhead is ordinary memory": {
			`domain: {memory: {guest: 1Gi, hugepages: {pageSize: 2Mi}}, devices: {}}`,
			func(o int64) int64 { return o }, nil},
		"with hugepages a limit is one of the overhead": {
			`domain: {memory: {guest: 1Gi, hugepages: {pageSize: 2Mi}}, resources: {limits: {memory: 1Gi}}, devices: {}}`,
			func(o int64) int64 { return o }, func(o int64) int64 { return o }},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			vmi := vmiWith(test.spec)
			pod, err := Render(vmi, hardware, "image", Facts{})
			if err != nil {
				t.Fatal(err)
			}
			r := pod.Spec.Containers[0].Resources
			if got, want := r.Requests.Memory().Value(), test.request(overhead(vmi)); got != want {
				t.Errorf("request %d, want %d", got, want)
			}
			limit, limited := r.Limits[corev1.ResourceMemory]
			switch {
			case limited != (test.limit != nil):
				t.Errorf("limited: %v", limited)
			case limited && limit.Value() != test.limit(overhead(vmi)):
				t.Errorf("limit %d, want %d", limit.Value(), test.limit(overhead(vmi)))
			}
			if h := vmi.Spec.Domain.Memory; h != nil && h.Hugepages != nil {
				pages := r.Limits["hugepages-2Mi"]
				if pages.Value() != gib {
					t.Errorf("hugepages %s", pages.String())
				}
			}
		})
	}
}

func TestWhatNodesHaveWholePiecesOfIsLimited(t *testing.T) {
	vmi := vmiWith(`domain: {memory: {guest: 1Gi}, resources: {requests: {` + layout.ResourceKVM + `: "1", hugepages-1Gi: 2Gi, ephemeral-storage: 1Gi}}, devices: {}}`)
	pod, err := Render(vmi, hardware, "image", Facts{})
	if err != nil {
		t.Fatal(err)
	}
	limits := pod.Spec.Containers[0].Resources.Limits
	for name, want := range map[corev1.ResourceName]string{
		layout.ResourceKVM: "1", "hugepages-1Gi": "2Gi", corev1.ResourceEphemeralStorage: "0",
	} {
		if got := limits[name]; got.String() != want {
			t.Errorf("the limit of %s is %s, want %s", name, got.String(), want)
		}
	}
}

func TestOverheadOfKnownGuests(t *testing.T) {
	ratio := hardware
	ratio.AdditionalGuestMemoryOverheadRatio = "1.5"
	nothing := hardware
	nothing.AdditionalGuestMemoryOverheadRatio = "0"
	tests := map[string]struct {
		spec     string
		settings clusterconfig.Settings
		wantMi   int64
	}{
		"none, if the administrator says so":  {`domain: {memory: {guest: 128Mi}, devices: {}}`, nothing, 0},
		"with nothing more that is asked for": {`domain: {memory: {guest: 128Mi, reservedOverhead: {}}, devices: {}}`, hardware, 109},
		"a small guest":                       {`domain: {memory: {guest: 128Mi}, devices: {}}`, hardware, 109},
		"emulated":                            {`domain: {memory: {guest: 128Mi}, devices: {}}`, emulated, 205},
		"without a screen":                    {`domain: {memory: {guest: 128Mi}, devices: {autoattachGraphicsDevice: false}}`, hardware, 77},
		"with a TPM":                          {`domain: {memory: {guest: 128Mi}, devices: {tpm: {}}}`, hardware, 121},
		"with two shared folders":             {`domain: {memory: {guest: 128Mi}, devices: {filesystems: [{name: a, virtiofs: {}}, {name: b, virtiofs: {}}]}}`, hardware, 157},
		"large, with two shared folders":      {`domain: {memory: {guest: 64Gi}, cpu: {sockets: 2, cores: 8}, devices: {filesystems: [{name: a, virtiofs: {}}, {name: b, virtiofs: {}}]}}`, hardware, 424 + 48 + 256},
		"with a TPM that is switched off":     {`domain: {memory: {guest: 128Mi}, devices: {tpm: {enabled: false}}}`, hardware, 109},
		"large":                               {`domain: {memory: {guest: 64Gi}, cpu: {sockets: 2, cores: 8}, devices: {}}`, hardware, 424},
		"CPUs asked for by the request":       {`domain: {memory: {guest: 128Mi}, resources: {requests: {cpu: 3500m}}, devices: {}}`, hardware, 121},
		"CPUs asked for by the limit":         {`domain: {memory: {guest: 128Mi}, resources: {requests: {cpu: 1}, limits: {cpu: 4}}, devices: {}}`, hardware, 121},
		"with half as much again":             {`domain: {memory: {guest: 128Mi}, devices: {}}`, ratio, 163},
		"with what the VMI asks for too":      {`domain: {memory: {guest: 128Mi, reservedOverhead: {addedOverhead: 100Mi}}, devices: {}}`, hardware, 209},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			got, err := Overhead(vmiWith(test.spec), test.settings)
			if err != nil {
				t.Fatal(err)
			}
			if got != test.wantMi<<20 {
				t.Errorf("%d MiB, want %d", got>>20, test.wantMi)
			}
		})
	}
}

func TestWhatCannotBeRenderedNamesItsField(t *testing.T) {
	bad := hardware
	bad.AdditionalGuestMemoryOverheadRatio = "much"
	negative := hardware
	negative.AdditionalGuestMemoryOverheadRatio = "-0.1"
	tests := map[string]struct {
		spec     string
		settings clusterconfig.Settings
		want     string
	}{
		"no memory": {`domain: {devices: {}}`, hardware, "spec.domain.memory.guest: the guest's memory must be set"},
		"a volume without a source": {`{domain: {memory: {guest: 1Gi}, devices: {}}, volumes: [{name: x}]}`, hardware,
			`spec.volumes[0]: the source of volume "x" is not supported by Drydock`},
		"a folder of a block device": {`{domain: {memory: {guest: 1Gi}, devices: {filesystems: [{name: x, virtiofs: {}}]}}, volumes: [{name: x, dataVolume: {name: device}}]}`, hardware,
			"spec.volumes[0]: PVC device is a block device (volumeMode Block): a folder to share needs a claim with volumeMode Filesystem"},
		"a probe without a handler": {`{domain: {memory: {guest: 1Gi}, devices: {}}, readinessProbe: {periodSeconds: 1}}`, hardware,
			"spec.readinessProbe: one of tcpSocket, httpGet, exec and guestAgentPing must be set"},
		"a ratio below nothing": {`domain: {memory: {guest: 1Gi}, devices: {}}`, negative,
			`reading additionalGuestMemoryOverheadRatio: "-0.1" is not a positive number`},
		"a ratio that is no number": {`domain: {memory: {guest: 1Gi}, devices: {}}`, bad,
			`reading additionalGuestMemoryOverheadRatio: "much" is not a positive number`},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			_, err := Render(vmiWith(test.spec), test.settings, "image", Facts{BlockClaims: map[string]bool{"device": true}})
			if err == nil || err.Error() != test.want {
				t.Errorf("got %v, want %s", err, test.want)
			}
		})
	}
}

// Others find pods by vmi.kubevirt.io/id; virt-controller by the label with the same value in all its versions.
func TestALongNameIsInLabelsAsOthersMakeIt(t *testing.T) {
	vmi := vmiWith(`domain: {memory: {guest: 1Gi}, devices: {}}`)
	vmi.Name = strings.Repeat("a", 64)
	pod, err := Render(vmi, hardware, "image", Facts{})
	if err != nil {
		t.Fatal(err)
	}
	if got, want := pod.Labels["vmi.kubevirt.io/id"], strings.Repeat("a", 54)+"-0098ba82"; got != want {
		t.Errorf("vmi.kubevirt.io/id is %s, want %s", got, want)
	}
	if got := pod.Labels["vm.kubevirt.io/name"]; got != NameLabelValue(vmi.Name) || NameLabel != "vm.kubevirt.io/name" {
		t.Errorf("vm.kubevirt.io/name is %s", got)
	}
}

func TestNamesAreValidAndFollowFromTheVMI(t *testing.T) {
	propertytest.Check(t, func(t *rapid.T) {
		vmi := vmiWith(`domain: {memory: {guest: 1Gi}, devices: {}}`)
		vmi.Name = rapid.StringMatching(`[a-z0-9]([-a-z0-9]{0,60}[a-z0-9])?(\.[a-z0-9]([-a-z0-9]{0,60}[a-z0-9])?){0,3}`).Draw(t, "name")
		vmi.UID = "a"
		pod, err := Render(vmi, hardware, "image", Facts{})
		if err != nil {
			t.Fatal(err)
		}
		if problems := validation.IsDNS1123Subdomain(pod.Name); len(problems) > 0 {
			t.Errorf("the pod's name %q: %v", pod.Name, problems)
		}
		if problems := validation.IsDNS1123Label(pod.Spec.Hostname); len(problems) > 0 {
			t.Errorf("the host name %q: %v", pod.Spec.Hostname, problems)
		}
		for key, value := range pod.Labels {
			if problems := validation.IsValidLabelValue(value); len(problems) > 0 {
				t.Errorf("the label %s: %v", key, problems)
			}
		}
		if again := Name(vmi); again != pod.Name {
			t.Errorf("the name is once %s and once %s", pod.Name, again)
		}
		vmi.UID = "b"
		if Name(vmi) == pod.Name {
			t.Error("a later VMI of the same name has the same pod")
		}
	})
}

func TestCPUModelsAreAskedOfHardwareOnly(t *testing.T) {
	vmi := vmiWith(`domain: {memory: {guest: 1Gi}, cpu: {model: Haswell}, devices: {}}`)
	for settings, want := range map[*clusterconfig.Settings]string{&hardware: "true", &emulated: ""} {
		pod, err := Render(vmi, *settings, "image", Facts{})
		if err != nil {
			t.Fatal(err)
		}
		if got := pod.Spec.NodeSelector[v1.CPUModelLabel+"Haswell"]; got != want {
			t.Errorf("emulation %v: the selector is %q, want %q", settings.UseEmulation, got, want)
		}
	}
}

// TestTheSELinuxTypeIsTheAdministrators: the rest of the context must be empty, so that the container runtime gives
// each pod categories of its own; and the VMI must have no influence.
func TestTheSELinuxTypeIsTheAdministrators(t *testing.T) {
	for _, launcherType := range []string{"", "container_kvm_t"} {
		var want *corev1.SELinuxOptions
		if launcherType != "" {
			want = &corev1.SELinuxOptions{Type: launcherType}
		}
		settings := clusterconfig.FromKubeVirt(&v1.KubeVirt{Spec: v1.KubeVirtSpec{
			Configuration: v1.KubeVirtConfiguration{SELinuxLauncherType: launcherType},
		}})
		vmi := readVMI(t, "testdata/minimal-emulated.vmi.yaml")
		vmi.Status.SelinuxContext = "system_u:system_r:spc_t:s0"
		launcher, err := Render(vmi, settings, "image", Facts{})
		if err != nil {
			t.Fatal(err)
		}
		provisioning, err := RenderProvisioning(vmi, settings, "image", Facts{})
		if err != nil {
			t.Fatal(err)
		}
		for _, pod := range []*corev1.Pod{launcher, provisioning} {
			if diff := cmp.Diff(want, pod.Spec.SecurityContext.SELinuxOptions); diff != "" {
				t.Errorf("type %q, pod %s: %s", launcherType, pod.Name, diff)
			}
			for _, c := range pod.Spec.Containers {
				if c.SecurityContext.SELinuxOptions != nil {
					t.Errorf("type %q: container %s has options of its own", launcherType, c.Name)
				}
			}
		}
	}
}

func TestOnlyNamedCPUModelsChooseANode(t *testing.T) {
	for cpu, want := range map[string]string{
		"{model: host-model}": "", "{model: host-passthrough}": "", "{model: Haswell}": "Haswell", "{cores: 2}": "",
	} {
		pod, err := Render(vmiWith(`domain: {memory: {guest: 1Gi}, cpu: `+cpu+`, devices: {}}`), hardware, "image", Facts{})
		if err != nil {
			t.Fatal(err)
		}
		got := ""
		for label := range pod.Spec.NodeSelector {
			if model, ok := strings.CutPrefix(label, v1.CPUModelLabel); ok {
				got += model
			}
		}
		if got != want {
			t.Errorf("cpu %s asks nodes for %q, want %q", cpu, got, want)
		}
	}
}

func TestHowAGuestsProbesReachIt(t *testing.T) {
	for name, test := range map[string]struct {
		probe v1.Probe
		want  corev1.ProbeHandler
	}{
		"by TCP":  {v1.Probe{Handler: v1.Handler{TCPSocket: &corev1.TCPSocketAction{Host: "x"}}}, corev1.ProbeHandler{TCPSocket: &corev1.TCPSocketAction{Host: "x"}}},
		"by HTTP": {v1.Probe{Handler: v1.Handler{HTTPGet: &corev1.HTTPGetAction{Path: "/x"}}}, corev1.ProbeHandler{HTTPGet: &corev1.HTTPGetAction{Path: "/x"}}},
		"by the agent": {v1.Probe{Handler: v1.Handler{GuestAgentPing: &v1.GuestAgentPing{}}},
			corev1.ProbeHandler{Exec: &corev1.ExecAction{Command: []string{layout.LauncherBinary, "probe", "guest-agent-ping", "--timeout=1s"}}}},
		"by a command, which has its time": {v1.Probe{Handler: v1.Handler{Exec: &corev1.ExecAction{Command: []string{"cat", "/x"}}}, TimeoutSeconds: 7},
			corev1.ProbeHandler{Exec: &corev1.ExecAction{Command: []string{layout.LauncherBinary, "probe", "exec", "--timeout=7s", "--", "cat", "/x"}}}},
	} {
		test.probe.PeriodSeconds, test.probe.FailureThreshold = 3, 4
		got, err := probe(&test.probe, "spec.readinessProbe", false)
		if err != nil {
			t.Fatal(err)
		}
		want := &corev1.Probe{ProbeHandler: test.want, PeriodSeconds: 3, FailureThreshold: 4, TimeoutSeconds: test.probe.TimeoutSeconds}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("%s:\n%s", name, diff)
		}
	}
	if got, err := probe(nil, "", true); got != nil || err != nil {
		t.Errorf("no probe is %+v, %v", got, err)
	}
}

func TestALivenessProbeKnowsWhetherItCounts(t *testing.T) {
	for name, test := range map[string]struct {
		probe v1.Probe
		want  corev1.Probe
	}{
		"by the agent": {
			v1.Probe{Handler: v1.Handler{GuestAgentPing: &v1.GuestAgentPing{}}, TimeoutSeconds: 5},
			corev1.Probe{TimeoutSeconds: 7, ProbeHandler: corev1.ProbeHandler{Exec: &corev1.ExecAction{
				Command: []string{layout.LauncherBinary, "probe", "guest-agent-ping", "--timeout=5s", "--liveness"}}}},
		},
		"by a command": {
			v1.Probe{Handler: v1.Handler{Exec: &corev1.ExecAction{Command: []string{"cat", "/x"}}}},
			corev1.Probe{TimeoutSeconds: 3, ProbeHandler: corev1.ProbeHandler{Exec: &corev1.ExecAction{
				Command: []string{layout.LauncherBinary, "probe", "exec", "--timeout=1s", "--liveness", "--", "cat", "/x"}}}},
		},
		"by TCP, by the kubelet": {
			v1.Probe{Handler: v1.Handler{TCPSocket: &corev1.TCPSocketAction{Host: "x"}}, TimeoutSeconds: 5},
			corev1.Probe{TimeoutSeconds: 5, ProbeHandler: corev1.ProbeHandler{TCPSocket: &corev1.TCPSocketAction{Host: "x"}}},
		},
	} {
		vmi := vmiWith(`{domain: {memory: {guest: 1Gi}, devices: {}}}`)
		vmi.Spec.LivenessProbe = &test.probe
		pod, err := Render(vmi, hardware, "image", Facts{})
		if err != nil {
			t.Fatal(err)
		}
		target, err := RenderTarget(vmi, Target{Migration: "m", SourceNode: "node1"}, hardware, "image", Facts{})
		if err != nil {
			t.Fatal(err)
		}
		for _, p := range []*corev1.Pod{pod, target} {
			c := p.Spec.Containers[0]
			if diff := cmp.Diff(&test.want, c.LivenessProbe); diff != "" {
				t.Errorf("%s, pod %s:\n%s", name, p.Name, diff)
			}
			// It must outlast every wait for a guest, without a failure for each second of it.
			want := []string{layout.LauncherBinary, "probe", "guest-began", "--timeout=3600s"}
			if s := c.StartupProbe; s == nil || !slices.Equal(s.Exec.Command, want) || s.TimeoutSeconds <= 3600 || s.FailureThreshold < 1e6 {
				t.Errorf("%s, pod %s: the startup probe is %+v", name, p.Name, s)
			}
		}
	}
	pod, err := Render(vmiWith(`{domain: {memory: {guest: 1Gi}, devices: {}}}`), hardware, "image", Facts{})
	if err != nil || pod.Spec.Containers[0].StartupProbe != nil {
		t.Errorf("without a liveness probe the startup probe is %+v (%v)", pod.Spec.Containers[0].StartupProbe, err)
	}
}

func TestAPodGetsNoVolumeThatComesLater(t *testing.T) {
	const spec = `{domain: {memory: {guest: 1Gi}, devices: {}}, volumes: [
		{name: later, persistentVolumeClaim: {claimName: a, hotpluggable: true}}, {name: image, containerDisk: {image: one, imagePullSecret: s}},
		{name: other, containerDisk: {image: two, imagePullSecret: s}}, {name: third, containerDisk: {image: three, imagePullSecret: u}}, {name: own, persistentVolumeClaim: {claimName: b}}]}`
	pod, err := Render(vmiWith(spec), hardware, "image", Facts{})
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]string{"vol-own=b"}, claimsIn(pod)); diff != "" {
		t.Errorf("its claims:\n%s", diff)
	}
	if diff := cmp.Diff([]corev1.LocalObjectReference{{Name: "s"}, {Name: "u"}}, pod.Spec.ImagePullSecrets); diff != "" {
		t.Errorf("its secrets, each of them once:\n%s", diff)
	}
	if diff := cmp.Diff([]string{"b"}, StartClaims(vmiWith(spec))); diff != "" {
		t.Errorf("the claims that it starts with:\n%s", diff)
	}
}

func TestTheCPUsThatAPodAsksFor(t *testing.T) {
	for name, test := range map[string]struct {
		resources, want string
		ratio           int
	}{
		"a share of the guest's":     {"{}", "400m", 10},
		"no ratio is one":            {"{}", "4", 0},
		"at least a thousandth":      {"{}", "1m", 1000000},
		"what the VMI asks for":      {"{requests: {cpu: 250m}}", "250m", 10},
		"a limit is the request too": {"{limits: {cpu: 3}}", "0", 10},
	} {
		settings := hardware
		settings.CPUAllocationRatio = test.ratio
		pod, err := Render(vmiWith(`domain: {memory: {guest: 1Gi}, cpu: {cores: 4}, resources: `+test.resources+`, devices: {}}`), settings, "image", Facts{})
		if err != nil {
			t.Fatal(err)
		}
		if got := pod.Spec.Containers[0].Resources.Requests.Cpu(); got.String() != test.want {
			t.Errorf("%s: %s, want %s", name, got, test.want)
		}
	}
}
