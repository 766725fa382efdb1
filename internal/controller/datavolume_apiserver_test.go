//go:build apiserver

package controller

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"math/big"
	"slices"
	"sync"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	cdiv1 "kubevirt.io/containerized-data-importer-api/pkg/apis/core/v1beta1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"drydock.dev/drydock/internal/certs"
	"drydock.dev/drydock/internal/contracts/layout"
	"drydock.dev/drydock/internal/contracts/transfer"
	"drydock.dev/drydock/internal/rules/cluster/clusterconfig"
	"drydock.dev/drydock/internal/rules/object/condition"
	"drydock.dev/drydock/internal/rules/storage/datavolume"
)

// storageClass makes a class without a driver: the test binds its claims.
func (w *world) storageClass(mode storagev1.VolumeBindingMode) string {
	w.t.Helper()
	class := &storagev1.StorageClass{
		ObjectMeta:  metav1.ObjectMeta{GenerateName: "controller-test-"},
		Provisioner: "nobody.example.com", VolumeBindingMode: &mode,
	}
	w.do("creating a storage class", w.client.Create(w.ctx, class))
	w.t.Cleanup(func() { _ = w.client.Delete(w.cleanup(), class) })
	return class.Name
}

func (w *world) createDV(name, class string, source cdiv1.DataVolumeSource, edits ...func(*cdiv1.DataVolume)) {
	w.t.Helper()
	dv := &cdiv1.DataVolume{
		ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: w.namespace},
		Spec: cdiv1.DataVolumeSpec{Source: &source, Storage: &cdiv1.StorageSpec{
			StorageClassName: &class,
			Resources: corev1.VolumeResourceRequirements{
				Requests: corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("1Gi")},
			},
		}},
	}
	for _, edit := range edits {
		edit(dv)
	}
	w.do("creating the DataVolume", w.client.Create(w.ctx, dv))
	w.t.Cleanup(func() { w.sweepDV(dv) })
}

// sweepDV plays the garbage collector for a DataVolume.
func (w *world) sweepDV(dv *cdiv1.DataVolume) {
	ctx := w.cleanup()
	_ = w.client.Delete(ctx, dv)
	patch := client.RawPatch(types.MergePatchType, []byte(`{"metadata":{"finalizers":null}}`))
	_ = w.client.Patch(ctx, dv, patch)
	_ = w.client.Patch(ctx, &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Name: dv.Name, Namespace: dv.Namespace}}, patch)
}

func (w *world) dv(name string) *cdiv1.DataVolume {
	w.t.Helper()
	var dv cdiv1.DataVolume
	w.do("reading DataVolume "+name, w.client.Get(w.ctx, client.ObjectKey{Namespace: w.namespace, Name: name}, &dv))
	return &dv
}

func (w *world) awaitDV(name string, phase cdiv1.DataVolumePhase) *cdiv1.DataVolume {
	w.t.Helper()
	var dv *cdiv1.DataVolume
	w.eventually(fmt.Sprintf("DataVolume %s in phase %s", name, phase), func() (bool, string) {
		dv = w.dv(name)
		return dv.Status.Phase == phase, fmt.Sprintf("it is in phase %q, conditions %+v", dv.Status.Phase, dv.Status.Conditions)
	})
	return dv
}

// The watch begins before the DataVolume's creation.
func (w *world) phases(name string) func() []cdiv1.DataVolumePhase {
	w.t.Helper()
	watcher, err := client.NewWithWatch(w.config, client.Options{Scheme: newScheme()})
	w.do("making a watching client", err)
	events, err := watcher.Watch(w.ctx, &cdiv1.DataVolumeList{}, client.InNamespace(w.namespace))
	w.do("watching DataVolumes", err)
	w.t.Cleanup(events.Stop)
	var mu sync.Mutex
	var seen []cdiv1.DataVolumePhase
	go func() {
		for event := range events.ResultChan() {
			dv, ok := event.Object.(*cdiv1.DataVolume)
			if !ok || event.Type == watch.Deleted || dv.Name != name {
				continue
			}
			mu.Lock()
			if len(seen) == 0 || seen[len(seen)-1] != dv.Status.Phase {
				seen = append(seen, dv.Status.Phase)
			}
			mu.Unlock()
		}
	}()
	return func() []cdiv1.DataVolumePhase {
		mu.Lock()
		defer mu.Unlock()
		return slices.Clone(seen)
	}
}

func (w *world) awaitClaim(name string) *corev1.PersistentVolumeClaim {
	w.t.Helper()
	var claim corev1.PersistentVolumeClaim
	w.eventually("the claim "+name, func() (bool, string) {
		err := w.client.Get(w.ctx, client.ObjectKey{Namespace: w.namespace, Name: name}, &claim)
		return err == nil, fmt.Sprint(err)
	})
	return &claim
}

// The volume has no node, so that the cluster's own scheduler leaves its pods to the test.
func (w *world) bindClaim(name string) {
	w.t.Helper()
	w.bindIn(w.namespace, name)
}

func (w *world) bindIn(namespace, name string) {
	w.t.Helper()
	var claim corev1.PersistentVolumeClaim
	key := client.ObjectKey{Namespace: namespace, Name: name}
	w.eventually("the claim "+name, func() (bool, string) {
		err := w.client.Get(w.ctx, key, &claim)
		return err == nil, fmt.Sprint(err)
	})
	nowhere := corev1.NodeSelectorTerm{MatchExpressions: []corev1.NodeSelectorRequirement{
		{Key: corev1.LabelHostname, Operator: corev1.NodeSelectorOpIn, Values: []string{"nowhere"}},
	}}
	volume := &corev1.PersistentVolume{
		ObjectMeta: metav1.ObjectMeta{GenerateName: "controller-test-"},
		Spec: corev1.PersistentVolumeSpec{
			Capacity: claim.Spec.Resources.Requests, AccessModes: claim.Spec.AccessModes, StorageClassName: *claim.Spec.StorageClassName,
			VolumeMode:                    claim.Spec.VolumeMode,
			ClaimRef:                      &corev1.ObjectReference{Kind: "PersistentVolumeClaim", APIVersion: "v1", Namespace: namespace, Name: name, UID: claim.UID},
			PersistentVolumeSource:        corev1.PersistentVolumeSource{HostPath: &corev1.HostPathVolumeSource{Path: "/nowhere"}},
			NodeAffinity:                  &corev1.VolumeNodeAffinity{Required: &corev1.NodeSelector{NodeSelectorTerms: []corev1.NodeSelectorTerm{nowhere}}},
			PersistentVolumeReclaimPolicy: corev1.PersistentVolumeReclaimRetain,
		},
	}
	w.do("creating a volume", w.client.Create(w.ctx, volume))
	w.t.Cleanup(func() {
		_ = w.client.Delete(w.cleanup(), volume)
		_ = w.client.Patch(w.cleanup(), volume, client.RawPatch(types.MergePatchType, []byte(`{"metadata":{"finalizers":null}}`)))
	})
	w.eventually("the claim "+name+" to be bound", func() (bool, string) {
		err := w.client.Get(w.ctx, key, &claim)
		return err == nil && claim.Status.Phase == corev1.ClaimBound, fmt.Sprint(err, claim.Status)
	})
}

func (w *world) awaitWorker(name string) *corev1.Pod {
	w.t.Helper()
	var pod corev1.Pod
	w.eventually("the worker pod "+name, func() (bool, string) {
		err := w.client.Get(w.ctx, client.ObjectKey{Namespace: w.namespace, Name: name}, &pod)
		return err == nil && pod.DeletionTimestamp == nil, fmt.Sprint(err)
	})
	return &pod
}

// works plays a kubelet that has started the worker.
func (w *world) works(pod *corev1.Pod) {
	w.t.Helper()
	w.podStatus(pod, func(s *corev1.PodStatus) {
		s.Phase = corev1.PodRunning
		s.ContainerStatuses = []corev1.ContainerStatus{{
			Name: "importer", Image: "i", ImageID: "i", State: corev1.ContainerState{Running: &corev1.ContainerStateRunning{}},
		}}
	})
}

// ends plays a kubelet whose container has ended.
func (w *world) ends(pod *corev1.Pod, code int32, result transfer.Result) {
	w.t.Helper()
	message, err := json.Marshal(result)
	w.do("encoding a result", err)
	w.podStatus(pod, func(s *corev1.PodStatus) {
		if s.Phase = corev1.PodRunning; code == 0 {
			s.Phase = corev1.PodSucceeded
		}
		s.ContainerStatuses = []corev1.ContainerStatus{{
			Name: "importer", Image: "i", ImageID: "i",
			State: corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{ExitCode: code, Message: string(message)}},
		}}
	})
}

func blank() cdiv1.DataVolumeSource {
	return cdiv1.DataVolumeSource{Blank: &cdiv1.DataVolumeBlankImage{}}
}

func TestADataVolumeGoesThroughAllPhasesWithFewWrites(t *testing.T) {
	w := newWorld(t)
	class := w.storageClass(storagev1.VolumeBindingWaitForFirstConsumer)
	phases := w.phases("disk")
	w.createDV("disk", class, blank())
	w.awaitDV("disk", cdiv1.WaitForFirstConsumer)
	w.awaitSettled()
	w.bindClaim("disk")
	pod := w.awaitWorker("importer-disk")
	w.eventually("the scheduler's words", func() (bool, string) {
		c := datavolume.Condition(w.dv("disk"), cdiv1.DataVolumeRunning)
		return c.Reason == corev1.PodReasonUnschedulable, fmt.Sprint(c)
	})
	w.works(pod)
	w.awaitDV("disk", cdiv1.ImportInProgress)
	w.ends(pod, 0, transfer.Result{Reason: transfer.ReasonCompleted, VirtualSize: 1 << 30})
	dv := w.awaitDV("disk", cdiv1.Succeeded)
	w.awaitSettled()
	want := []cdiv1.DataVolumePhase{"", cdiv1.Pending, cdiv1.WaitForFirstConsumer, cdiv1.PVCBound, cdiv1.ImportScheduled, cdiv1.ImportInProgress, cdiv1.Succeeded}
	// The test's watch may be later than the loops'.
	w.eventually("the phases to be seen", func() (bool, string) {
		got := phases()
		return slices.Equal(got, want), fmt.Sprintf("%q, want %q", got, want)
	})
	if dv.Status.Progress != "100.0%" || dv.Status.ClaimName != "disk" || dv.Status.RestartCount != 0 {
		t.Errorf("status is %+v", dv.Status)
	}
	writes := []string{
		"PATCH datavolumes/status", // Pending
		"POST persistentvolumeclaims",
		"PATCH datavolumes/status", // WaitForFirstConsumer
		"PATCH datavolumes/status", // PVCBound
		"POST pods",
		"PATCH datavolumes/status", // ImportScheduled
		"PATCH datavolumes/status", // ImportInProgress
		"PATCH datavolumes/status", // Succeeded
		"POST events",
		"DELETE pods",
	}
	// The condition that no node fits is a write of its own unless the scheduler is fast.
	w.expectWritesOf(writes, append(slices.Clone(writes), "PATCH datavolumes/status"))
	t.Logf("a DataVolume's life costs %d writes", len(w.writes.of(w.namespace)))
}

// TestADataVolumeFillsItsClaimBesideAPodOfOthers creates a pod together with the DataVolume, as one manifest does. The
// claim must still be filled.
func TestADataVolumeFillsItsClaimBesideAPodOfOthers(t *testing.T) {
	w := newWorld(t)
	w.createDV(claimName, w.storageClass(storagev1.VolumeBindingImmediate), blank())
	w.mount("web")
	w.bindClaim(claimName)
	pod := w.awaitWorker("importer-" + claimName)
	w.works(pod)
	w.awaitDV(claimName, cdiv1.ImportInProgress)
	w.ends(pod, 0, transfer.Result{Reason: transfer.ReasonCompleted, VirtualSize: 1 << 30})
	w.awaitDV(claimName, cdiv1.Succeeded)
}

func TestAWorkerThatCannotSucceedEndsTheDataVolume(t *testing.T) {
	w := newWorld(t)
	w.createDV("disk", w.storageClass(storagev1.VolumeBindingImmediate), cdiv1.DataVolumeSource{
		HTTP: &cdiv1.DataVolumeSourceHTTP{URL: "http://example.com/disk"},
	})
	w.bindClaim("disk")
	pod := w.awaitWorker("importer-disk")
	w.ends(pod, 1, transfer.Result{Reason: transfer.ReasonSourceRefused, Message: "404 Not Found"})
	w.eventually("the reason to be shown", func() (bool, string) {
		c := datavolume.Condition(w.dv("disk"), cdiv1.DataVolumeRunning)
		return c != nil && c.Reason == "SourceRefused" && c.Message == "404 Not Found", fmt.Sprint(c)
	})
	w.ends(pod, 1, transfer.Result{Reason: transfer.ReasonChecksumMismatch, Message: "the checksum is another"})
	dv := w.awaitDV("disk", cdiv1.Failed)
	if c := datavolume.Condition(dv, cdiv1.DataVolumeRunning); c.Reason != "ChecksumMismatch" || c.Message != "the checksum is another" {
		t.Errorf("Running says %+v", c)
	}
	w.awaitPodDeletion(pod)
	w.awaitSettled()
}

func TestALostWorkerIsReplacedAndAnEndedOneIsNot(t *testing.T) {
	w := newWorld(t)
	w.createDV("disk", w.storageClass(storagev1.VolumeBindingImmediate), blank())
	w.bindClaim("disk")
	pod := w.awaitWorker("importer-disk")
	w.works(pod)
	w.awaitDV("disk", cdiv1.ImportInProgress)
	w.removePod(pod)
	var second *corev1.Pod
	w.eventually("another worker", func() (bool, string) {
		second = w.awaitWorker("importer-disk")
		return second.UID != pod.UID, "it is the first"
	})
	w.stop()
	w.ends(second, 0, transfer.Result{Reason: transfer.ReasonCompleted})
	w.startLoops()
	if dv := w.awaitDV("disk", cdiv1.Succeeded); dv.Status.RestartCount != 1 {
		t.Errorf("%d restarts, want 1", dv.Status.RestartCount)
	}
	w.awaitPodDeletion(second)
	w.stop()
	w.removePod(second)
	w.startLoops()
	w.awaitSettled()
	var third corev1.Pod
	err := w.client.Get(w.ctx, client.ObjectKeyFromObject(second), &third)
	if !apierrors.IsNotFound(err) {
		t.Errorf("what was filled is filled again: %v", err)
	}
}

func TestAnUploadHasItsServiceAndCertificate(t *testing.T) {
	w := newWorld(t)
	w.uploadAuthority()
	w.createDV("disk", w.storageClass(storagev1.VolumeBindingImmediate), cdiv1.DataVolumeSource{Upload: &cdiv1.DataVolumeSourceUpload{}})
	w.bindClaim("disk")
	pod := w.awaitWorker("cdi-upload-disk")
	var service corev1.Service
	w.do("reading the Service", w.client.Get(w.ctx, client.ObjectKeyFromObject(pod), &service))
	for name, value := range service.Spec.Selector {
		if pod.Labels[name] != value {
			t.Errorf("the Service selects %s=%s, the pod has %q", name, value, pod.Labels[name])
		}
	}
	secret := ""
	for _, volume := range pod.Spec.Volumes {
		if volume.Name == "tls" {
			secret = volume.Secret.SecretName
		}
	}
	var certificate corev1.Secret
	w.do("reading the Secret", w.client.Get(w.ctx, client.ObjectKey{Namespace: w.namespace, Name: secret}, &certificate))
	if len(certificate.Data["tls.crt"]) == 0 || len(certificate.Data["ca.crt"]) == 0 || certificate.Data["ca.key"] != nil {
		t.Errorf("the Secret holds %d entries", len(certificate.Data))
	}
	w.works(pod)
	w.podStatus(pod, func(s *corev1.PodStatus) {
		s.Conditions = []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionTrue}}
	})
	w.awaitDV("disk", cdiv1.UploadReady)
}

func TestACopyAcrossNamespacesLeavesNothingBehind(t *testing.T) {
	w := newWorld(t)
	w.uploadAuthority()
	class := w.storageClass(storagev1.VolumeBindingImmediate)
	other := w.anotherNamespace()
	source := &corev1.PersistentVolumeClaim{
		ObjectMeta: metav1.ObjectMeta{Name: "image", Namespace: other},
		Spec: corev1.PersistentVolumeClaimSpec{
			StorageClassName: &class, AccessModes: []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce},
			Resources: corev1.VolumeResourceRequirements{Requests: corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("1Gi")}},
		},
	}
	w.do("creating the source", w.client.Create(w.ctx, source))
	w.bindIn(other, "image")

	from := cdiv1.DataVolumeSource{PVC: &cdiv1.DataVolumeSourcePVC{Namespace: other, Name: "image"}}
	w.createDV("forbidden", class, from)
	w.createDV("copy", class, from, func(dv *cdiv1.DataVolume) {
		dv.Annotations = map[string]string{datavolume.AnnCloneAllowed: "pvc/" + other + "/image"}
	})
	dv := w.awaitDV("forbidden", cdiv1.Failed)
	if c := datavolume.Condition(dv, cdiv1.DataVolumeRunning); c.Reason != datavolume.ReasonNotAllowed {
		t.Errorf("Running says %+v", c)
	}
	w.bindClaim("copy")
	w.awaitWorker("cdi-upload-copy")
	dv = w.dv("copy")
	var sender corev1.Pod
	key := client.ObjectKey{Namespace: other, Name: datavolume.SourcePodName(dv)}
	w.eventually("the source pod", func() (bool, string) {
		err := w.client.Get(w.ctx, key, &sender)
		return err == nil, fmt.Sprint(err)
	})
	if claim := sender.Spec.Volumes[1].PersistentVolumeClaim; claim == nil || !claim.ReadOnly {
		t.Errorf("the source is not mounted read-only: %+v", sender.Spec.Volumes)
	}
	w.do("deleting the DataVolume", w.client.Delete(w.ctx, dv))
	w.eventually("the source pod, its Secret and the DataVolume to go", func() (bool, string) {
		_ = w.client.Delete(w.ctx, &sender, client.GracePeriodSeconds(0))
		podErr := w.client.Get(w.ctx, key, &sender)
		secretErr := w.client.Get(w.ctx, key, &corev1.Secret{})
		dvErr := w.client.Get(w.ctx, client.ObjectKeyFromObject(dv), dv)
		return apierrors.IsNotFound(podErr) && apierrors.IsNotFound(secretErr) && apierrors.IsNotFound(dvErr),
			fmt.Sprint(podErr, secretErr, dvErr, dv.Finalizers)
	})
}

// TestATenantsDeploymentDoesNotPassForCDI creates such a Deployment, also one owned by a CDI object that Drydock
// serves. Drydock must go on.
func TestATenantsDeploymentDoesNotPassForCDI(t *testing.T) {
	w := newWorld(t)
	class := w.storageClass(storagev1.VolumeBindingImmediate)
	object := w.createCDI("cdi", nil)
	w.deployCDI(controlledBy(object))
	w.createDV("disk", class, blank())
	w.awaitClaim("disk")
}

func TestDrydockStandsDownWhileCDIIsInstalled(t *testing.T) {
	w := newWorld(t)
	class := w.storageClass(storagev1.VolumeBindingImmediate)
	deployment := w.installCDI()
	w.setEmulation(clusterconfig.Name, w.namespace, true)
	w.eventually("the loops to have seen CDI", func() (bool, string) {
		c := condition.Find(w.kubevirt().Status.Conditions, clusterconfig.ConditionDataVolumes)
		return c != nil && c.Status == corev1.ConditionFalse, fmt.Sprintf("the KubeVirt object says %+v", c)
	})
	w.createDV("disk", class, blank())
	w.awaitSettled()
	if dv := w.dv("disk"); dv.Status.Phase != "" {
		t.Fatalf("phase %s was written while CDI serves", dv.Status.Phase)
	}
	w.do("removing CDI", w.client.Delete(w.ctx, deployment))
	w.awaitDV("disk", cdiv1.Pending)
	w.awaitClaim("disk")
}

// TestTheCDIObjectConfiguresImports checks that the configuration is in the CDIConfig, whoever else writes there,
// and outlives the object.
func TestTheCDIObjectConfiguresImports(t *testing.T) {
	w := newWorld(t)
	object := w.createCDI("cdi", &cdiv1.CDIConfigSpec{Preallocation: new(true), UploadProxyURLOverride: new("https://uploads.example.com")})
	second := w.createCDI("later", &cdiv1.CDIConfigSpec{})
	w.eventually("the CDI objects to say which of them counts", func() (bool, string) {
		first, other := w.cdi(object), w.cdi(second)
		return first.Status.Phase == "Deployed" && first.Status.ObservedVersion != "" && len(first.Status.Conditions) == 3 && other.Status.Phase == "Error",
			fmt.Sprintf("the first says %+v, the second %+v", first.Status, other.Status)
	})
	configured := func() (bool, string) {
		config := w.cdiConfig()
		url := config.Status.UploadProxyURL
		return config.Status.Preallocation && url != nil && *url == "https://uploads.example.com", fmt.Sprintf("the CDIConfig is %+v, %+v", config.Spec, config.Status)
	}
	w.eventually("the CDIConfig to have its configuration", configured)
	changed := w.cdiConfig()
	before := changed.DeepCopy()
	changed.Spec.Preallocation, changed.Spec.InsecureRegistries = nil, []string{"registry.example.com"}
	w.do("changing the CDIConfig", w.client.Patch(w.ctx, changed, client.MergeFrom(before)))
	w.eventually("that to be taken back", func() (bool, string) {
		is, why := configured()
		return is && len(w.cdiConfig().Spec.InsecureRegistries) == 0, why
	})
	w.do("deleting the second CDI object", w.client.Delete(w.ctx, second))
	w.do("deleting the CDI object", w.client.Delete(w.ctx, object))
	w.eventually("the CDI object to go", func() (bool, string) {
		err := w.client.Get(w.ctx, client.ObjectKeyFromObject(object), &cdiv1.CDI{})
		return apierrors.IsNotFound(err), fmt.Sprint(err)
	})
	w.awaitSettled()
	if is, why := configured(); !is {
		t.Errorf("without the CDI object %s", why)
	}
}

// The end of the test deletes it, and its configuration.
func (w *world) createCDI(name string, config *cdiv1.CDIConfigSpec) *cdiv1.CDI {
	w.t.Helper()
	object := &cdiv1.CDI{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: cdiv1.CDISpec{Config: config}}
	w.do("creating a CDI object", w.client.Create(w.ctx, object))
	w.t.Cleanup(func() {
		_ = w.client.Delete(w.cleanup(), object)
		changed := w.cdiConfig()
		before := changed.DeepCopy()
		changed.Spec = cdiv1.CDIConfigSpec{}
		_ = w.client.Patch(w.cleanup(), changed, client.MergeFrom(before))
	})
	return object
}

// cdi reads a CDI object again.
func (w *world) cdi(object *cdiv1.CDI) *cdiv1.CDI {
	w.t.Helper()
	is := &cdiv1.CDI{}
	w.do("reading a CDI object", w.client.Get(w.ctx, client.ObjectKeyFromObject(object), is))
	return is
}

// cdiConfig reads the CDIConfig.
func (w *world) cdiConfig() *cdiv1.CDIConfig {
	w.t.Helper()
	config := &cdiv1.CDIConfig{}
	w.do("reading the CDIConfig", w.client.Get(w.cleanup(), client.ObjectKey{Name: datavolume.ConfigName}, config))
	return config
}

// A CDI installation is its Deployment, and a CDI object with its operator's finalizer.
func (w *world) installCDI() *appsv1.Deployment {
	w.t.Helper()
	object := w.createCDI("cdi", nil)
	w.eventually("CDI's operator to have the CDI object", func() (bool, string) {
		is := w.cdi(object)
		is.Status.OperatorVersion = "v1.62.0"
		err := w.client.Status().Update(w.ctx, is)
		return err == nil, fmt.Sprint(err)
	})
	return w.deployCDI(controlledBy(object))
}

// controlledBy returns an owner reference to a controlling CDI object.
func controlledBy(object *cdiv1.CDI) metav1.OwnerReference {
	return metav1.OwnerReference{APIVersion: cdiv1.SchemeGroupVersion.String(), Kind: "CDI", Name: object.Name, UID: object.UID, Controller: new(true)}
}

func (w *world) deployCDI(owners ...metav1.OwnerReference) *appsv1.Deployment {
	w.t.Helper()
	labels := map[string]string{"app": "cdi"}
	deployment := &appsv1.Deployment{
		ObjectMeta: metav1.ObjectMeta{Name: "cdi-deployment", Namespace: w.namespace, OwnerReferences: owners},
		Spec: appsv1.DeploymentSpec{
			Replicas: new(int32(0)), Selector: &metav1.LabelSelector{MatchLabels: labels},
			Template: corev1.PodTemplateSpec{
				ObjectMeta: metav1.ObjectMeta{Labels: labels},
				Spec:       corev1.PodSpec{Containers: []corev1.Container{{Name: "c", Image: "i"}}},
			},
		},
	}
	w.do("deploying CDI", w.client.Create(w.ctx, deployment))
	// The loops' cache shows it with its next event.
	w.awaitSettled()
	return deployment
}

// uploadAuthority makes the objects that virt-api's certificate code leaves for workers.
func (w *world) uploadAuthority() {
	w.t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	w.do("making a key", err)
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "ca"}, NotAfter: time.Now().Add(time.Hour),
		KeyUsage: x509.KeyUsageCertSign, BasicConstraintsValid: true, IsCA: true,
	}
	cert, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	w.do("signing", err)
	text, err := x509.MarshalPKCS8PrivateKey(key)
	w.do("encoding a key", err)
	w.do("creating the authority", w.client.Create(w.ctx, &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Name: certs.UploadSecret, Namespace: w.namespace},
		Data: map[string][]byte{
			"ca.crt": pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: cert}),
			"ca.key": pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: text}),
		},
	}))
}

func TestAClaimOfItsOwnTakesAnUpload(t *testing.T) {
	w := newWorld(t)
	w.uploadAuthority()
	class := w.storageClass(storagev1.VolumeBindingImmediate)
	claim := &corev1.PersistentVolumeClaim{
		ObjectMeta: metav1.ObjectMeta{Name: "disk", Namespace: w.namespace, Annotations: map[string]string{layout.AnnUploadTarget: ""}},
		Spec: corev1.PersistentVolumeClaimSpec{
			StorageClassName: &class, AccessModes: []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce},
			Resources: corev1.VolumeResourceRequirements{Requests: corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("1Gi")}},
		},
	}
	w.do("creating the claim", w.client.Create(w.ctx, claim))
	w.bindClaim("disk")
	awaitPhase := func(want corev1.PodPhase) {
		w.eventually("the claim to say "+string(want), func() (bool, string) {
			got := w.awaitClaim("disk").Annotations
			return got[layout.AnnPodPhase] == string(want), fmt.Sprint(got)
		})
	}
	pod := w.awaitWorker("cdi-upload-disk")
	w.works(pod)
	awaitPhase(corev1.PodRunning)
	w.ends(pod, 0, transfer.Result{Reason: transfer.ReasonCompleted})
	awaitPhase(corev1.PodSucceeded)
	w.awaitPodDeletion(pod)
	w.awaitSettled()
}
