package datavolume

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	cdiv1 "kubevirt.io/containerized-data-importer-api/pkg/apis/core/v1beta1"

	"drydock.dev/drydock/internal/contracts/layout"
	"drydock.dev/drydock/internal/contracts/transfer"
)

func TestWhatAWorkerIsToDo(t *testing.T) {
	web := func(edit func(*cdiv1.DataVolumeSourceHTTP)) *cdiv1.DataVolume {
		source := &cdiv1.DataVolumeSourceHTTP{URL: "https://example.com/x"}
		edit(source)
		return newDV(cdiv1.DataVolumeSource{HTTP: source})
	}
	registry := func(edit func(*cdiv1.DataVolumeSourceRegistry)) *cdiv1.DataVolume {
		source := &cdiv1.DataVolumeSourceRegistry{URL: new("docker://quay.io/disk:1")}
		edit(source)
		return newDV(cdiv1.DataVolumeSource{Registry: source})
	}
	const address = "https://example.com/x"
	for name, test := range map[string]struct {
		dv   *cdiv1.DataVolume
		want transfer.Task
	}{
		"fetch":                  {web(func(*cdiv1.DataVolumeSourceHTTP) {}), transfer.Task{Kind: transfer.KindHTTP, URL: address}},
		"fetch with a password":  {web(func(s *cdiv1.DataVolumeSourceHTTP) { s.SecretRef = "x" }), transfer.Task{Kind: transfer.KindHTTP, URL: address, Credentials: true}},
		"fetch with authorities": {web(func(s *cdiv1.DataVolumeSourceHTTP) { s.CertConfigMap = "x" }), transfer.Task{Kind: transfer.KindHTTP, URL: address, CA: true}},
		"fetch with headers": {web(func(s *cdiv1.DataVolumeSourceHTTP) {
			s.ExtraHeaders, s.SecretExtraHeaders = []string{"a: b"}, []string{"x"}
		}),
			transfer.Task{Kind: transfer.KindHTTP, URL: address, Headers: []string{"a: b"}, SecretHeaders: true}},
		"fetch an archive": {newDV(httpSource(), func(dv *cdiv1.DataVolume) { dv.Spec.ContentType = cdiv1.DataVolumeArchive }),
			transfer.Task{Kind: transfer.KindHTTP, URL: "http://example.com/disk.qcow2", Archive: true}},
		"fetch and take all space": {newDV(httpSource(), func(dv *cdiv1.DataVolume) { dv.Spec.Preallocation = new(true) }),
			transfer.Task{Kind: transfer.KindHTTP, URL: "http://example.com/disk.qcow2", Preallocate: true}},
		"nothing but a disk": {newDV(cdiv1.DataVolumeSource{Blank: &cdiv1.DataVolumeBlankImage{}}), transfer.Task{Kind: transfer.KindBlank}},
		"take an upload":     {newDV(cdiv1.DataVolumeSource{Upload: &cdiv1.DataVolumeSourceUpload{}}), transfer.Task{Kind: transfer.KindUpload}},
		"take a copy":        {newDV(cloneOf("golden", "image")), transfer.Task{Kind: transfer.KindUpload}},
		"an image":           {registry(func(*cdiv1.DataVolumeSourceRegistry) {}), transfer.Task{Kind: transfer.KindRegistry, URL: "docker://quay.io/disk:1"}},
		"an image with all": {registry(func(s *cdiv1.DataVolumeSourceRegistry) { s.SecretRef, s.CertConfigMap = new("x"), new("y") }),
			transfer.Task{Kind: transfer.KindRegistry, URL: "docker://quay.io/disk:1", Credentials: true, CA: true}},
		"an image of a registry without TLS": {registry(func(s *cdiv1.DataVolumeSourceRegistry) { s.URL = new("docker://plain.example.com/disk:1") }),
			transfer.Task{Kind: transfer.KindRegistry, URL: "docker://plain.example.com/disk:1", Insecure: true}},
		"an image that the node pulls": {registry(func(s *cdiv1.DataVolumeSourceRegistry) { s.PullMethod = new(cdiv1.RegistryPullNode) }),
			transfer.Task{Kind: transfer.KindRegistry, URL: "file://" + transfer.SourceDir}},
		"an image that the worker pulls": {registry(func(s *cdiv1.DataVolumeSourceRegistry) { s.PullMethod = new(cdiv1.RegistryPullPod) }),
			transfer.Task{Kind: transfer.KindRegistry, URL: "docker://quay.io/disk:1"}},
	} {
		t.Run(name, func(t *testing.T) {
			config := ConfigOf(&cdiv1.CDIConfig{Spec: cdiv1.CDIConfigSpec{InsecureRegistries: []string{"plain.example.com"}}})
			test.want.Size = mebibytes(1024)
			if diff := cmp.Diff(test.want, TaskOf(Observed{DataVolume: test.dv, Claim: &corev1.PersistentVolumeClaim{}, Config: config})); diff != "" {
				t.Error(diff)
			}
		})
	}
	if NodePull(nil) {
		t.Error("a node pulls the image of no registry")
	}
}

func TestWhichWorkersTakeWhatIsSent(t *testing.T) {
	for name, test := range map[string]struct {
		source    cdiv1.DataVolumeSource
		component string
		encrypted bool
	}{
		"an import": {httpSource(), ComponentImporter, false},
		"an upload": {cdiv1.DataVolumeSource{Upload: &cdiv1.DataVolumeSourceUpload{}}, ComponentUpload, true},
	} {
		o := Observed{DataVolume: newDV(test.source, inPhase(cdiv1.PVCBound)), Config: ConfigOf(nil), Now: noon}
		o.Claim = claimOf(o, corev1.ClaimBound)
		made := decide(o).CreateWorker
		if made == nil || made.Component != test.component || (made.Certificate != nil) != test.encrypted || made.RestartsBefore != 0 {
			t.Errorf("%s: the worker is %+v", name, made)
		}
		o.DataVolume.Status.Phase = cdiv1.ImportScheduled
		if made := decide(o).CreateWorker; made == nil || made.RestartsBefore != 1 {
			t.Errorf("%s: the worker after one that was lost is %+v", name, made)
		}
	}
}

func TestWhatIsSaidOfAClaim(t *testing.T) {
	for phase, want := range map[corev1.PersistentVolumeClaimPhase]condition{
		corev1.ClaimBound:   {"True", "Bound", "PVC disk Bound"},
		corev1.ClaimPending: {"False", "Pending", "PVC disk Pending"},
		corev1.ClaimLost:    {"False", "ClaimLost", "PVC disk Lost"},
	} {
		dv := newDV(httpSource())
		claim := &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Name: "disk"}, Status: corev1.PersistentVolumeClaimStatus{Phase: phase}}
		if got := boundCondition(dv, claim); got != want {
			t.Errorf("a claim that is %s: %+v, want %+v", phase, got, want)
		}
	}
}

// Other conditions of a pod must not count as its scheduling or readiness.
func TestWhichConditionsOfAWorkerCount(t *testing.T) {
	conditions := func(list ...corev1.PodCondition) *corev1.Pod {
		return podOf(newDV(httpSource()), corev1.PodStatus{Phase: corev1.PodPending, Conditions: list})
	}
	for name, test := range map[string]struct {
		pod    *corev1.Pod
		reason string
		ready  bool
	}{
		"it has no node":              {conditions(corev1.PodCondition{Type: corev1.PodScheduled, Status: "False", Reason: "Unschedulable"}), "Unschedulable", false},
		"it has its node":             {conditions(corev1.PodCondition{Type: corev1.PodScheduled, Status: "True", Reason: "x"}), "", false},
		"it is ready":                 {conditions(corev1.PodCondition{Type: corev1.PodReady, Status: "True"}), "", true},
		"it is not ready":             {conditions(corev1.PodCondition{Type: corev1.PodReady, Status: "False", Reason: "x"}), "", false},
		"something else is or is not": {conditions(corev1.PodCondition{Type: "A", Status: "False", Reason: "x"}, corev1.PodCondition{Type: "B", Status: "True", Reason: "y"}), "", false},
	} {
		if w := observeWorker(test.pod); w.reason != test.reason || w.ready != test.ready || w.started {
			t.Errorf("%s: reason %q, ready %v, started %v; want %q, %v, and not started", name, w.reason, w.ready, w.started, test.reason, test.ready)
		}
	}
	// A container that has neither run nor ended has not started.
	status := corev1.ContainerStatus{}
	pod := podOf(newDV(httpSource()), corev1.PodStatus{Phase: corev1.PodPending, ContainerStatuses: []corev1.ContainerStatus{status}})
	if observeWorker(pod).started {
		t.Error("a container that waits has started")
	}
	pod.Status.ContainerStatuses[0].RestartCount = 1
	if !observeWorker(pod).started {
		t.Error("a container that was started again has not started")
	}
}

func TestAClaimOfADataVolumeTakesNoUploadOfItsOwn(t *testing.T) {
	owned := func(kind string) []metav1.OwnerReference {
		return []metav1.OwnerReference{{Kind: kind, Name: "x", UID: "1", Controller: new(true)}}
	}
	for name, test := range map[string]struct {
		owners []metav1.OwnerReference
		want   bool
	}{
		"nobody's":        {nil, true},
		"somebody else's": {owned("StatefulSet"), true},
		"a DataVolume's":  {owned("DataVolume"), false},
	} {
		claim := &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{OwnerReferences: test.owners, Annotations: map[string]string{
			layout.AnnUploadTarget: "",
		}}}
		if got := TakesUpload(claim); got != test.want {
			t.Errorf("%s: %v, want %v", name, got, test.want)
		}
	}
}
