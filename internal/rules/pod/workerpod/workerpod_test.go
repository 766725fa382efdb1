package workerpod

import (
	"encoding/json"
	"slices"
	"testing"

	"github.com/go-logr/logr"
	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	cdiv1 "kubevirt.io/containerized-data-importer-api/pkg/apis/core/v1beta1"

	"drydock.dev/drydock/internal/contracts/transfer"
	"drydock.dev/drydock/internal/rules/storage/datavolume"
)

func render(t *testing.T, task transfer.Task, source cdiv1.DataVolumeSource, edit func(*datavolume.Worker)) *corev1.Pod {
	t.Helper()
	dv := &cdiv1.DataVolume{ObjectMeta: metav1.ObjectMeta{Name: "disk", Namespace: "ns", UID: "1"}}
	dv.Spec.Source, dv.Spec.PriorityClassName, dv.Spec.ServiceAccountName = &source, "urgent", "puller"
	w := &datavolume.Worker{
		Name: "importer-disk", Namespace: "ns", Component: datavolume.ComponentImporter, Task: task, RestartsBefore: 2,
		Claim: &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Name: "disk", Namespace: "ns"}},
	}
	if edit != nil {
		edit(w)
	}
	pod, err := Pod(w, dv, Settings{Image: "importer", Config: datavolume.ConfigOf(nil)})
	if err != nil {
		t.Fatal(err)
	}
	return pod
}

// mounts returns a worker's volumes by mount path.
func mounts(pod *corev1.Pod) map[string]corev1.VolumeSource {
	volumes, out := map[string]corev1.VolumeSource{}, map[string]corev1.VolumeSource{}
	for _, v := range pod.Spec.Volumes {
		volumes[v.Name] = v.VolumeSource
	}
	c := pod.Spec.Containers[0]
	for _, m := range c.VolumeMounts {
		out[m.MountPath] = volumes[m.Name]
	}
	for _, d := range c.VolumeDevices {
		out[d.DevicePath] = volumes[d.Name]
	}
	return out
}

func TestAWorkerHasNoRights(t *testing.T) {
	pod := render(t, transfer.Task{Kind: transfer.KindBlank}, cdiv1.DataVolumeSource{}, nil)
	c, all := pod.Spec.Containers[0], pod.Spec.SecurityContext
	switch {
	case *pod.Spec.AutomountServiceAccountToken, !*all.RunAsNonRoot, *all.RunAsUser != 107, *all.FSGroup != 107,
		all.SeccompProfile.Type != corev1.SeccompProfileTypeRuntimeDefault:
		t.Errorf("the pod may too much: %+v", pod.Spec)
	case *c.SecurityContext.AllowPrivilegeEscalation, !*c.SecurityContext.ReadOnlyRootFilesystem,
		!slices.Equal(c.SecurityContext.Capabilities.Drop, []corev1.Capability{"ALL"}), c.SecurityContext.Privileged != nil:
		t.Errorf("the container may too much: %+v", c.SecurityContext)
	}
	if c.Resources.Limits.Memory().IsZero() || c.Resources.Limits.Cpu().IsZero() || pod.Spec.Volumes[0].EmptyDir.SizeLimit.IsZero() {
		t.Error("what a hostile image may cost has no limit")
	}
	if !metav1.IsControlledBy(pod, &cdiv1.DataVolume{ObjectMeta: metav1.ObjectMeta{UID: "1"}}) || pod.Spec.PriorityClassName != "urgent" || pod.Spec.ServiceAccountName != "puller" ||
		pod.Spec.RestartPolicy != corev1.RestartPolicyOnFailure || pod.Annotations[datavolume.AnnRestarts] != "2" {
		t.Errorf("metadata %+v, priority %q, restarts %s", pod.ObjectMeta, pod.Spec.PriorityClassName, pod.Spec.RestartPolicy)
	}
}

func TestAWorkerFindsWhatItsTaskNeeds(t *testing.T) {
	task := transfer.Task{Kind: transfer.KindHTTP, URL: "https://example.com", Size: 5}
	pod := render(t, task, cdiv1.DataVolumeSource{HTTP: &cdiv1.DataVolumeSourceHTTP{
		SecretRef: "password", CertConfigMap: "authorities", SecretExtraHeaders: []string{"one", "two"},
	}}, nil)
	var got transfer.Task
	if err := json.Unmarshal([]byte(pod.Spec.Containers[0].Env[0].Value), &got); err != nil || got.URL != task.URL || got.Size != 5 {
		t.Errorf("the task arrives as %+v (%v)", got, err)
	}
	at := mounts(pod)
	if at[transfer.TargetDir].PersistentVolumeClaim.ClaimName != "disk" || at[transfer.CredentialsDir].Secret.SecretName != "password" ||
		at[transfer.CADir].ConfigMap.Name != "authorities" || at[transfer.HeadersDir+"/1"].Secret.SecretName != "two" {
		t.Errorf("the mounts are %+v", at)
	}

	device := mounts(render(t, transfer.Task{Kind: transfer.KindBlank, Block: true}, cdiv1.DataVolumeSource{}, nil))
	if device[transfer.TargetDevice].PersistentVolumeClaim == nil {
		t.Errorf("a block claim is at none of %+v", device)
	}

	image := mounts(render(t, transfer.Task{Kind: transfer.KindRegistry}, cdiv1.DataVolumeSource{Registry: &cdiv1.DataVolumeSourceRegistry{
		URL: new("docker://quay.io/disk:1"), PullMethod: new(cdiv1.RegistryPullNode),
	}}, nil))
	if image[transfer.SourceDir].Image == nil || image[transfer.SourceDir].Image.Reference != "quay.io/disk:1" {
		t.Errorf("the node's image is at none of %+v", image)
	}
}

func TestASourceIsReadAndOwnedByNobodyElsewhere(t *testing.T) {
	pod := render(t, transfer.Task{Kind: transfer.KindCloneSource}, cdiv1.DataVolumeSource{PVC: &cdiv1.DataVolumeSourcePVC{}},
		func(w *datavolume.Worker) {
			w.Namespace, w.Certificate = "golden", &datavolume.Certificate{Secret: "certificate"}
		})
	at := mounts(pod)
	claim := at[transfer.SourceDir].PersistentVolumeClaim
	if claim == nil || !claim.ReadOnly || at[transfer.TLSDir].Secret.SecretName != "certificate" || len(pod.OwnerReferences) != 0 ||
		pod.Spec.ServiceAccountName != "" || pod.Spec.PriorityClassName != "" {
		t.Errorf("mounts %+v, owners %v, service account %q, priority %q", at, pod.OwnerReferences, pod.Spec.ServiceAccountName, pod.Spec.PriorityClassName)
	}
}

func TestAWorkerIsOnTheNetworksOfItsOwner(t *testing.T) {
	set := map[string]string{
		datavolume.AnnPodNetworks: "storage", datavolume.AnnPodDefaultNetwork: "egress", datavolume.AnnPodLinkerd: "enabled", "mine": "kept",
	}
	claim := &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Name: "disk", Namespace: "ns", Annotations: set}}
	worker := &datavolume.Worker{Name: "worker", Namespace: "ns", Claim: claim}
	dv := &cdiv1.DataVolume{ObjectMeta: metav1.ObjectMeta{Name: "disk", Namespace: "ns", Annotations: set}, Spec: cdiv1.DataVolumeSpec{Source: &cdiv1.DataVolumeSource{}}}
	elsewhere := *worker
	elsewhere.Namespace = "golden"
	asked := map[string]string{
		datavolume.AnnPodNetworks: "storage", datavolume.AnnPodDefaultNetwork: "egress", datavolume.AnnPodLinkerd: "enabled",
		datavolume.AnnPodIstio: "false", datavolume.AnnRestarts: "0",
	}
	for name, c := range map[string]struct {
		pod  func() (*corev1.Pod, error)
		want map[string]string
	}{
		"of a DataVolume": {func() (*corev1.Pod, error) { return Pod(worker, dv, Settings{}) }, asked},
		"of a claim":      {func() (*corev1.Pod, error) { return ClaimPod(worker, Settings{}) }, asked},
		"in another namespace": {func() (*corev1.Pod, error) { return Pod(&elsewhere, dv, Settings{}) }, map[string]string{
			datavolume.AnnPodLinkerd: "disabled", datavolume.AnnPodIstio: "false", datavolume.AnnRestarts: "0",
		}},
	} {
		pod, err := c.pod()
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		delete(pod.Annotations, datavolume.AnnTarget)
		if diff := cmp.Diff(c.want, pod.Annotations); diff != "" {
			t.Errorf("%s: %s", name, diff)
		}
	}
}

func TestAServiceLeadsToItsUploadAlone(t *testing.T) {
	pod := render(t, transfer.Task{Kind: transfer.KindUpload}, cdiv1.DataVolumeSource{Upload: &cdiv1.DataVolumeSourceUpload{}},
		func(w *datavolume.Worker) {
			w.Name, w.Certificate = "cdi-upload-disk", &datavolume.Certificate{Secret: "certificate"}
		})
	other := render(t, transfer.Task{Kind: transfer.KindUpload}, cdiv1.DataVolumeSource{Upload: &cdiv1.DataVolumeSourceUpload{}},
		func(w *datavolume.Worker) { w.Name = "cdi-upload-other" })
	service := Service(pod)
	for name, value := range service.Spec.Selector {
		if pod.Labels[name] != value || other.Labels[name] == value {
			t.Errorf("%s=%s does not tell %q from %q", name, value, pod.Labels[name], other.Labels[name])
		}
	}
	if service.Spec.Ports[0].Port != transfer.UploadPort {
		t.Errorf("ports %+v", service.Spec.Ports)
	}
	// The kubelet warns of a worker that is probed before it listens.
	c := pod.Spec.Containers[0]
	want := []string{"virt-importer", "-await-port", "8443"}
	if c.StartupProbe == nil || !slices.Equal(c.StartupProbe.Exec.Command, want) || c.ReadinessProbe != nil || c.LivenessProbe != nil {
		t.Errorf("probes %+v, %+v, %+v, want the first to run %v and no other", c.StartupProbe, c.ReadinessProbe, c.LivenessProbe, want)
	}
}

func TestAWorkerFollowsABoundClaimToAnyNodeThatLives(t *testing.T) {
	const forever = int64(-1)
	// The first toleration that fits a taint decides, for the scheduler and for the evicting controller.
	tolerated := func(pod *corev1.Pod, taint corev1.Taint) (seconds int64, ok bool) {
		for _, toleration := range pod.Spec.Tolerations {
			if !toleration.ToleratesTaint(logr.Discard(), &taint, false) {
				continue
			}
			if toleration.TolerationSeconds == nil {
				return forever, true
			}
			return *toleration.TolerationSeconds, true
		}
		return 0, false
	}
	for name, c := range map[string]struct {
		phase   corev1.PersistentVolumeClaimPhase
		taint   corev1.Taint
		seconds int64
		ok      bool
	}{
		"kept for others":                    {corev1.ClaimBound, corev1.Taint{Key: "gpu", Effect: corev1.TaintEffectNoSchedule}, forever, true},
		"kept for others, who are sent away": {corev1.ClaimBound, corev1.Taint{Key: "gpu", Effect: corev1.TaintEffectNoExecute}, forever, true},
		"lost":                               {corev1.ClaimBound, corev1.Taint{Key: corev1.TaintNodeUnreachable, Effect: corev1.TaintEffectNoExecute}, 300, true},
		"kept for others, the claim unbound": {corev1.ClaimPending, corev1.Taint{Key: "gpu", Effect: corev1.TaintEffectNoExecute}, 0, false},
	} {
		pod := render(t, transfer.Task{Kind: transfer.KindBlank}, cdiv1.DataVolumeSource{}, func(w *datavolume.Worker) { w.Claim.Status.Phase = c.phase })
		if seconds, ok := tolerated(pod, c.taint); seconds != c.seconds || ok != c.ok {
			t.Errorf("a node that is %s: tolerated %v for %d s, want %v for %d s", name, ok, seconds, c.ok, c.seconds)
		}
	}
}

func TestWhatAWorkerGetsFollowsFromItsTask(t *testing.T) {
	registry := func(r cdiv1.DataVolumeSourceRegistry) cdiv1.DataVolumeSource {
		return cdiv1.DataVolumeSource{Registry: &r}
	}
	for name, test := range map[string]struct {
		task   transfer.Task
		source cdiv1.DataVolumeSource
		want   []string
	}{
		"nothing but an address": {transfer.Task{Kind: transfer.KindHTTP}, cdiv1.DataVolumeSource{HTTP: &cdiv1.DataVolumeSourceHTTP{}}, nil},
		"a registry with a password and authorities": {transfer.Task{Kind: transfer.KindRegistry},
			registry(cdiv1.DataVolumeSourceRegistry{URL: new("docker://quay.io/disk:1"), SecretRef: new("password"), CertConfigMap: new("authorities")}),
			[]string{transfer.CredentialsDir, transfer.CADir}},
		"a registry whose names are empty": {transfer.Task{Kind: transfer.KindRegistry},
			registry(cdiv1.DataVolumeSourceRegistry{URL: new("docker://quay.io/disk:1"), SecretRef: new(""), CertConfigMap: new("")}), nil},
		"a registry without more": {transfer.Task{Kind: transfer.KindRegistry}, registry(cdiv1.DataVolumeSourceRegistry{URL: new("docker://quay.io/disk:1")}), nil},
	} {
		t.Run(name, func(t *testing.T) {
			at := mounts(render(t, test.task, test.source, nil))
			want := append([]string{transfer.WorkDir, transfer.TargetDir}, test.want...)
			for _, dir := range want {
				if _, there := at[dir]; !there {
					t.Errorf("nothing is mounted at %s", dir)
				}
			}
			if len(at) != len(want) {
				t.Errorf("mounted are %+v, want nothing but %q", at, want)
			}
		})
	}
}

// The size of a worker's scratch space must be bounded by the disk's size and the tools' needs; it may write there and
// to its claim, and nowhere else.
func TestWhatAWorkerMayWrite(t *testing.T) {
	pod := render(t, transfer.Task{Kind: transfer.KindHTTP, Size: 5 << 30}, cdiv1.DataVolumeSource{HTTP: &cdiv1.DataVolumeSourceHTTP{SecretRef: "password"}}, nil)
	if got, least := pod.Spec.Volumes[0].EmptyDir.SizeLimit.Value(), int64(5<<30); got <= least || got > least+1<<30 {
		t.Errorf("beside a disk of 5 GiB it may write %d bytes", got)
	}
	for _, m := range pod.Spec.Containers[0].VolumeMounts {
		if want := m.MountPath != transfer.WorkDir && m.MountPath != transfer.TargetDir; m.ReadOnly != want {
			t.Errorf("%s is for reading only: %v, want %v", m.MountPath, m.ReadOnly, want)
		}
	}
	if len(pod.Spec.SecurityContext.SupplementalGroups) != 0 {
		t.Errorf("a worker without a device is in the groups %v", pod.Spec.SecurityContext.SupplementalGroups)
	}
	source := render(t, transfer.Task{Kind: transfer.KindCloneSource, Block: true}, cdiv1.DataVolumeSource{PVC: &cdiv1.DataVolumeSourcePVC{}}, nil)
	if at := mounts(source)[transfer.SourceDevice].PersistentVolumeClaim; at == nil || !at.ReadOnly {
		t.Errorf("the device of a source is %+v", at)
	}
}

func TestOnlyAnUploadIsServed(t *testing.T) {
	pod := render(t, transfer.Task{Kind: transfer.KindBlank}, cdiv1.DataVolumeSource{}, nil)
	if c := pod.Spec.Containers[0]; c.ReadinessProbe != nil || len(c.Ports) != 1 || pod.Labels[datavolume.LabelService] != "" {
		t.Errorf("a worker that takes no upload has ports %+v, a probe %+v, labels %v", c.Ports, c.ReadinessProbe, pod.Labels)
	}
}

func TestAWorkerIsToldOfTheProxy(t *testing.T) {
	for name, test := range map[string]struct {
		proxy *cdiv1.ImportProxy
		want  []corev1.EnvVar
	}{
		"none":                 {nil, nil},
		"all that is set":      {&cdiv1.ImportProxy{HTTPProxy: new("http://p"), HTTPSProxy: new("http://s"), NoProxy: new("local")}, []corev1.EnvVar{{Name: "HTTP_PROXY", Value: "http://p"}, {Name: "HTTPS_PROXY", Value: "http://s"}, {Name: "NO_PROXY", Value: "local"}}},
		"what is empty is not": {&cdiv1.ImportProxy{HTTPProxy: new(""), HTTPSProxy: new("http://s")}, []corev1.EnvVar{{Name: "HTTPS_PROXY", Value: "http://s"}}},
	} {
		settings := Settings{Config: datavolume.ConfigOf(nil)}
		settings.Config.Proxy = test.proxy
		w := &datavolume.Worker{Name: "w", Claim: &corev1.PersistentVolumeClaim{}, Task: transfer.Task{Kind: transfer.KindBlank}}
		pod, err := ClaimPod(w, settings)
		if err != nil {
			t.Fatal(err)
		}
		if got := pod.Spec.Containers[0].Env[1:]; !slices.Equal(got, test.want) {
			t.Errorf("%s: %+v, want %+v", name, got, test.want)
		}
	}
}

func TestTheWorkerOfAClaimIsTheClaims(t *testing.T) {
	claim := &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Name: "disk", Namespace: "ns", UID: "7"}}
	pod, err := ClaimPod(&datavolume.Worker{Name: "cdi-upload-disk", Namespace: "ns", Claim: claim, Task: transfer.Task{Kind: transfer.KindUpload}}, Settings{Image: "importer"})
	if err != nil {
		t.Fatal(err)
	}
	if !metav1.IsControlledBy(pod, claim) || pod.OwnerReferences[0].Kind != "PersistentVolumeClaim" {
		t.Errorf("its owners are %+v", pod.OwnerReferences)
	}
	secret := Secret(pod, "certificate", map[string][]byte{"tls.key": []byte("x")})
	if secret.Name != "certificate" || secret.Namespace != "ns" || !metav1.IsControlledBy(secret, claim) || string(secret.Data["tls.key"]) != "x" {
		t.Errorf("its certificate is in %+v", secret)
	}
}
