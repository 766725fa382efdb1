package maintenancepod

import (
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	v1 "kubevirt.io/api/core/v1"
	"sigs.k8s.io/yaml"

	"drydock.dev/drydock/internal/contracts/layout"
	"drydock.dev/drydock/internal/contracts/maintenance"
	"drydock.dev/drydock/internal/rules/cluster/clusterconfig"
)

// db is a VM with every kind of volume that matters here.
const db = `
nodeSelector: {disk: fast}
tolerations: [{key: vms, operator: Exists}]
affinity: {podAntiAffinity: {requiredDuringSchedulingIgnoredDuringExecution: [{topologyKey: zone, labelSelector: {matchLabels: {app: db}}}]}}
topologySpreadConstraints: [{maxSkew: 1, topologyKey: zone, whenUnsatisfiable: DoNotSchedule}]
priorityClassName: high
schedulerName: own
hostname: db
subdomain: dbs
domain:
  memory: {guest: 2Gi}
  cpu: {cores: 2}
  firmware: {kernelBoot: {container: {image: k, imagePullSecret: kernels}}}
  devices:
    disks: [{name: root, disk: {}}, {name: data, disk: {readonly: true}}, {name: cd, cdrom: {bus: sata}}, {name: lun, lun: {readonly: true}}]
volumes:
- {name: root, dataVolume: {name: db-root}}
- {name: data, persistentVolumeClaim: {claimName: db-data}}
- {name: cd, persistentVolumeClaim: {claimName: db-cd}}
- {name: lun, persistentVolumeClaim: {claimName: db-lun}}
- {name: more, persistentVolumeClaim: {claimName: db-more, hotpluggable: true}}
- {name: given, persistentVolumeClaim: {claimName: db-given, readOnly: true}}
- {name: base, ephemeral: {persistentVolumeClaim: {claimName: db-base}}}
- {name: image, containerDisk: {image: i, imagePullSecret: images}}
- {name: other, containerDisk: {image: j, imagePullSecret: kernels}}
- {name: open, containerDisk: {image: o}}
- {name: init, cloudInitNoCloud: {userData: x}}
`

func aMachine(t *testing.T, spec string) *v1.VirtualMachine {
	t.Helper()
	vm := &v1.VirtualMachine{ObjectMeta: metav1.ObjectMeta{Namespace: "lab", Name: "db", UID: "u1"}}
	vm.Spec.Template = &v1.VirtualMachineInstanceTemplateSpec{}
	if err := yaml.UnmarshalStrict([]byte(spec), &vm.Spec.Template.Spec); err != nil {
		t.Fatal(err)
	}
	return vm
}

// A name that ends in * is a block device.
func bound(names ...string) map[string]*corev1.PersistentVolumeClaim {
	claims := map[string]*corev1.PersistentVolumeClaim{}
	for _, name := range names {
		name, block := strings.CutSuffix(name, "*")
		claim := &corev1.PersistentVolumeClaim{}
		claim.Spec.VolumeName = "pv"
		claim.Spec.VolumeMode = new(corev1.PersistentVolumeFilesystem)
		if block {
			claim.Spec.VolumeMode = new(corev1.PersistentVolumeBlock)
		}
		claims[name] = claim
	}
	return claims
}

func input(t *testing.T, spec string, r maintenance.Request) Input {
	t.Helper()
	return Input{
		VM: aMachine(t, spec), Request: &r, Image: "tools:1", Token: "t1",
		Settings: clusterconfig.Settings{ImagePullPolicy: corev1.PullIfNotPresent, UseEmulation: true},
		Claims:   bound("db-root*", "db-data", "db-cd", "db-lun*", "db-more", "db-given", "db-base"),
	}
}

func rendered(t *testing.T, in Input) *corev1.Pod {
	t.Helper()
	pod, err := Render(in)
	if err != nil {
		t.Fatal(err)
	}
	return pod
}

// seen lists each disk's path, kind and access.
func seen(pod *corev1.Pod) []string {
	var out []string
	where := map[string]string{}
	for _, m := range pod.Spec.Containers[0].VolumeMounts {
		where[m.Name] = m.MountPath + " folder"
		if m.ReadOnly {
			where[m.Name] += " ro"
		}
	}
	for _, d := range pod.Spec.Containers[0].VolumeDevices {
		where[d.Name] = d.DevicePath + " device"
	}
	for _, v := range pod.Spec.Volumes {
		text := v.PersistentVolumeClaim.ClaimName + " at " + where[v.Name]
		if v.PersistentVolumeClaim.ReadOnly {
			text += " ro"
		}
		out = append(out, text)
	}
	return out
}

func TestAPodHasTheDisksThatAreAskedFor(t *testing.T) {
	const uefi = "domain: {firmware: {bootloader: {efi: {persistent: true}}}, devices: {}}\nvolumes: [{name: image, containerDisk: {image: i}}]"
	const folder = "domain: {devices: {filesystems: [{name: given, virtiofs: {}}]}}\nvolumes: [{name: data, persistentVolumeClaim: {claimName: db-data}}, {name: given, persistentVolumeClaim: {claimName: db-given}}]"
	state := layout.StateClaimName("db", "u1")
	for name, test := range map[string]struct {
		spec    string
		request maintenance.Request
		want    []string
	}{
		"all that are on claims, and what the guest may only read for reading": {want: []string{
			"db-root at /disks/root device", "db-data at /disks/data folder ro ro", "db-cd at /disks/cd folder ro ro", "db-lun at /disks/lun device ro",
			"db-more at /disks/more folder", "db-given at /disks/given folder ro ro",
		}},
		"all for reading": {request: maintenance.Request{ReadOnly: true, Disks: []string{"more", "root"}}, want: []string{
			"db-root at /disks/root device ro", "db-more at /disks/more folder ro ro",
		}},
		"a base by its name, never to be written to": {request: maintenance.Request{Disks: []string{"base", "base"}}, want: []string{"db-base at /disks/base folder ro ro"}},
		"no shared folder":                           {spec: folder, want: []string{"db-data at /disks/data folder"}},
		"a shared folder by its name":                {spec: folder, request: maintenance.Request{Disks: []string{"given"}}, want: []string{"db-given at /disks/given folder"}},
		"state beside disks":                         {spec: uefi + "\n", request: maintenance.Request{BackendStorage: true}, want: []string{state + " at /backend-storage folder"}},
		"state for reading":                          {spec: uefi, request: maintenance.Request{BackendStorage: true, ReadOnly: true}, want: []string{state + " at /backend-storage folder ro ro"}},
	} {
		t.Run(name, func(t *testing.T) {
			spec := test.spec
			if spec == "" {
				spec = db
			}
			in := input(t, spec, test.request)
			in.Claims[state] = bound("x")["x"]
			if diff := cmp.Diff(test.want, seen(rendered(t, in))); diff != "" {
				t.Error(diff)
			}
		})
	}
}

func TestWhatCannotBeHadIsRefusedInWords(t *testing.T) {
	const onClaims = "; on claims are: root, data, cd, lun, more, given, base"
	deleted := bound("db-root")
	deleted["db-root"].DeletionTimestamp = &metav1.Time{Time: time.Unix(1, 0)}
	lost := bound("db-root")
	lost["db-root"].Status.Phase = corev1.ClaimLost
	root := maintenance.Request{Disks: []string{"root"}}
	for name, test := range map[string]struct {
		spec    string
		request maintenance.Request
		claims  map[string]*corev1.PersistentVolumeClaim
		want    string
	}{
		"an unknown disk":     {request: maintenance.Request{Disks: []string{"root", "rot"}}, want: `the VM has no volume "rot"` + onClaims},
		"a containerDisk":     {request: maintenance.Request{Disks: []string{"image"}}, want: `volume "image" is a containerDisk: an image, which each guest begins with anew` + onClaims},
		"cloud-init":          {request: maintenance.Request{Disks: []string{"init"}}, want: `volume "init" is on no PersistentVolumeClaim and no DataVolume` + onClaims},
		"a VM without any":    {spec: "volumes: [{name: i, containerDisk: {image: i}}]", request: maintenance.Request{Disks: []string{"x"}}, want: `the VM has no volume "x"; none of its volumes is on a claim`},
		"none on a claim":     {spec: "volumes: [{name: i, containerDisk: {image: i}}]", want: "none of the VM's disks is on a PersistentVolumeClaim or a DataVolume: there is nothing that would outlast the pod"},
		"no state":            {request: maintenance.Request{BackendStorage: true}, want: "the VM keeps neither UEFI variables nor a TPM: there is no backend storage to be had"},
		"a claim missing":     {request: root, claims: bound(), want: "PVC db-root, which the VM's disk is to be on, does not exist"},
		"a claim that goes":   {request: root, claims: deleted, want: "PVC db-root, which the VM's disk is on, is being deleted"},
		"a claim that's lost": {request: root, claims: lost, want: "PVC db-root, which the VM's disk is on, has lost its persistent volume"},
		"a request that is no quantity": {request: maintenance.Request{Resources: maintenance.Resources{Requests: map[string]string{"memory": "much", "cpu": "many"}}},
			want: `resources.requests.cpu: "many" is no quantity: ` + resource.ErrFormatWrong.Error()},
		"a limit that is no quantity": {request: maintenance.Request{Resources: maintenance.Resources{Limits: map[string]string{"cpu": "x"}}},
			want: `resources.limits.cpu: "x" is no quantity: ` + resource.ErrFormatWrong.Error()},
	} {
		t.Run(name, func(t *testing.T) {
			spec := test.spec
			if spec == "" {
				spec = db
			}
			in := input(t, spec, test.request)
			if test.claims != nil {
				in.Claims = test.claims
			}
			if _, err := Render(in); err == nil || err.Error() != test.want {
				t.Errorf("got %v, want %s", err, test.want)
			}
		})
	}
	without := input(t, db, root)
	without.VM.Spec.Template = nil
	if _, err := Render(without); err == nil || err.Error() != "the VM has no template, and so no disks" {
		t.Errorf("without a template: %v", err)
	}
	if _, err := Claims(without.VM, without.Request); err == nil || err.Error() != "the VM has no template, and so no disks" {
		t.Errorf("without a template: %v", err)
	}
}

func TestThePodIsPlacedAsTheVMIsAndMayNothing(t *testing.T) {
	in := input(t, db, maintenance.Request{})
	pod := rendered(t, in)
	spec, template := pod.Spec, in.VM.Spec.Template.Spec
	if want := map[string]string{"disk": "fast", v1.NodeSchedulable: "true"}; !cmp.Equal(spec.NodeSelector, want) {
		t.Errorf("node selector %v", spec.NodeSelector)
	}
	type constraints struct {
		A    *corev1.Affinity
		T    []corev1.Toleration
		S    []corev1.TopologySpreadConstraint
		P, N string
	}
	got := constraints{spec.Affinity, spec.Tolerations, spec.TopologySpreadConstraints, spec.PriorityClassName, spec.SchedulerName}
	want := constraints{template.Affinity, template.Tolerations, template.TopologySpreadConstraints, "high", "own"}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
	if spec.Hostname != "" || spec.Subdomain != "" {
		t.Errorf("the guest's name %s.%s is the pod's", spec.Hostname, spec.Subdomain)
	}
	secrets := []corev1.LocalObjectReference{{Name: "kernels"}, {Name: "images"}}
	if diff := cmp.Diff(secrets, spec.ImagePullSecrets); diff != "" {
		t.Error(diff)
	}
	security := &corev1.PodSecurityContext{
		RunAsUser: new(int64(107)), RunAsGroup: new(int64(107)), RunAsNonRoot: new(true), FSGroup: new(int64(107)),
		FSGroupChangePolicy: new(corev1.FSGroupChangeOnRootMismatch),
		SeccompProfile:      &corev1.SeccompProfile{Type: corev1.SeccompProfileTypeRuntimeDefault},
	}
	if diff := cmp.Diff(security, spec.SecurityContext); diff != "" {
		t.Error(diff)
	}
	container := &corev1.SecurityContext{AllowPrivilegeEscalation: new(false), Capabilities: &corev1.Capabilities{Drop: []corev1.Capability{"ALL"}}}
	if diff := cmp.Diff(container, spec.Containers[0].SecurityContext); diff != "" {
		t.Error(diff)
	}
	if *spec.AutomountServiceAccountToken || *spec.EnableServiceLinks || spec.RestartPolicy != corev1.RestartPolicyNever || *spec.TerminationGracePeriodSeconds != 30 || spec.ActiveDeadlineSeconds != nil {
		t.Errorf("got %+v", spec)
	}
	if want := map[string]string{layout.MaintenanceForLabel: "db"}; !cmp.Equal(pod.Labels, want) || pod.Namespace != "lab" {
		t.Errorf("labels %v in %s", pod.Labels, pod.Namespace)
	}
}

// bare removes the fields of a container that other tests cover.
func bare(c corev1.Container) corev1.Container {
	c.Resources, c.SecurityContext, c.VolumeMounts, c.VolumeDevices = corev1.ResourceRequirements{}, nil, nil, nil
	return c
}

func TestTheContainerIsWhatWasAskedFor(t *testing.T) {
	in := input(t, db, maintenance.Request{})
	want := corev1.Container{Name: "libguestfs", Image: "tools:1", ImagePullPolicy: corev1.PullIfNotPresent}
	if diff := cmp.Diff(want, bare(rendered(t, in).Spec.Containers[0])); diff != "" {
		t.Error(diff)
	}
	in = input(t, db, maintenance.Request{Image: "own:2", ImagePullPolicy: "Always", Command: []string{"sh"}, Args: []string{"-c", "true"}, Interactive: true})
	want = corev1.Container{
		Name: "libguestfs", Image: "own:2", ImagePullPolicy: corev1.PullAlways, Command: []string{"sh"}, Args: []string{"-c", "true"},
		Stdin: true, StdinOnce: true, TTY: true, Env: []corev1.EnvVar{{Name: "TMOUT", Value: "3600"}},
	}
	if diff := cmp.Diff(want, bare(rendered(t, in).Spec.Containers[0])); diff != "" {
		t.Error(diff)
	}
}

func TestThePodsUserAndItsEndAreThoseAskedFor(t *testing.T) {
	in := input(t, db, maintenance.Request{UID: new(int64(0)), FSGroup: new(int64(5)), DeadlineSeconds: 1})
	in.Settings.SELinuxLauncherType = "own_t"
	pod := rendered(t, in)
	want := &corev1.PodSecurityContext{
		RunAsUser: new(int64(0)), RunAsGroup: new(int64(107)), RunAsNonRoot: new(false), FSGroup: new(int64(5)),
		FSGroupChangePolicy: new(corev1.FSGroupChangeOnRootMismatch),
		SeccompProfile:      &corev1.SeccompProfile{Type: corev1.SeccompProfileTypeRuntimeDefault},
		SELinuxOptions:      &corev1.SELinuxOptions{Type: "own_t"},
	}
	if diff := cmp.Diff(want, pod.Spec.SecurityContext); diff != "" {
		t.Error(diff)
	}
	if diff := cmp.Diff(new(int64(1)), pod.Spec.ActiveDeadlineSeconds); diff != "" {
		t.Error(diff)
	}
}

func TestWhatThePodAsksOfANode(t *testing.T) {
	unbound := bound("db-root")
	unbound["db-root"].Spec.VolumeName = ""
	root := []string{"root"}
	for name, test := range map[string]struct {
		request    maintenance.Request
		kvm        bool
		claims     map[string]*corev1.PersistentVolumeClaim
		cpu, least string
		limits     map[corev1.ResourceName]string
	}{
		"its own":           {cpu: "100m", least: "512Mi"},
		"what is asked for": {request: maintenance.Request{Resources: maintenance.Resources{Requests: map[string]string{"cpu": "3", "memory": "9Gi"}}}, cpu: "3", least: "9Gi"},
		"no more than its limits": {request: maintenance.Request{Resources: maintenance.Resources{Limits: map[string]string{"cpu": "50m", "memory": "1Gi"}}},
			cpu: "50m", least: "512Mi", limits: map[corev1.ResourceName]string{"cpu": "50m", "memory": "1Gi"}},
		"what is asked for, though the limit is lower": {request: maintenance.Request{Resources: maintenance.Resources{
			Requests: map[string]string{"cpu": "2"}, Limits: map[string]string{"cpu": "1"},
		}}, cpu: "2", least: "512Mi", limits: map[corev1.ResourceName]string{"cpu": "1"}},
		"what the VM needs, where it binds a claim":    {request: maintenance.Request{Disks: root}, claims: unbound, cpu: "200m", least: "2Gi"},
		"more than the VM needs, if that is asked for": {request: maintenance.Request{Disks: root, Resources: maintenance.Resources{Requests: map[string]string{"cpu": "201m", "memory": "9Gi"}}}, claims: unbound, cpu: "201m", least: "9Gi"},
		"KVM where there is none":                      {request: maintenance.Request{KVM: true}, cpu: "100m", least: "512Mi"},
		"KVM":                                          {request: maintenance.Request{KVM: true}, kvm: true, cpu: "100m", least: "512Mi", limits: map[corev1.ResourceName]string{layout.ResourceKVM: "1"}},
		"no KVM":                                       {kvm: true, cpu: "100m", least: "512Mi"},
	} {
		t.Run(name, func(t *testing.T) {
			in := input(t, db, test.request)
			in.Settings.UseEmulation, in.Settings.CPUAllocationRatio = !test.kvm, 10
			if test.claims != nil {
				in.Claims = test.claims
			}
			got := rendered(t, in).Spec.Containers[0].Resources
			least := resource.MustParse(test.least)
			if cpu := got.Requests.Cpu().String(); cpu != test.cpu || got.Requests.Memory().Cmp(least) < 0 || got.Requests.Memory().Value() > 2*least.Value() {
				t.Errorf("requests cpu %s, memory %s", cpu, got.Requests.Memory())
			}
			if len(got.Requests) != 2 || len(got.Limits) != len(test.limits) {
				t.Errorf("got %v", got)
			}
			for name, want := range test.limits {
				if q := got.Limits[name]; q.String() != want {
					t.Errorf("limit %s: %s", name, q.String())
				}
			}
		})
	}
}

func TestNamesFit(t *testing.T) {
	in := input(t, db, maintenance.Request{})
	in.VM.Name = strings.Repeat("a", 70)
	pod := rendered(t, in)
	in.Token = "t2"
	other := rendered(t, in)
	if len(pod.Name) > 63 || pod.Name == other.Name || !strings.HasPrefix(pod.Name, "maintenance-aaa") {
		t.Errorf("names %s and %s", pod.Name, other.Name)
	}
	if value := pod.Labels[layout.MaintenanceForLabel]; value != layout.LabelValue(in.VM.Name) {
		t.Errorf("label %s", value)
	}
}

func TestTheClaimsOfARequest(t *testing.T) {
	const twice = "volumes: [{name: b, persistentVolumeClaim: {claimName: k2}}, {name: a, dataVolume: {name: k1}}, {name: c, persistentVolumeClaim: {claimName: k2}}]"
	got, err := Claims(aMachine(t, twice), &maintenance.Request{})
	if err != nil || !cmp.Equal(got, []string{"k1", "k2"}) {
		t.Errorf("got %v, %v", got, err)
	}
	if _, err := Claims(aMachine(t, twice), &maintenance.Request{Disks: []string{"z"}}); err == nil {
		t.Error("a disk that is not there was accepted")
	}
}
