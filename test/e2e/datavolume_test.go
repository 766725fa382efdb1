//go:build e2e

package e2e

import (
	"context"
	"fmt"
	"path"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	v1 "kubevirt.io/api/core/v1"
	cdiv1 "kubevirt.io/containerized-data-importer-api/pkg/apis/core/v1beta1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"drydock.dev/drydock/internal/contracts/layout"
	"drydock.dev/drydock/internal/rules/storage/datavolume"
)

// newDataVolume makes a DataVolume that is filled without waiting for a first consumer.
func newDataVolume(ns, name, size string, source cdiv1.DataVolumeSource) *cdiv1.DataVolume {
	return &cdiv1.DataVolume{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: ns, Name: name, Annotations: map[string]string{layout.AnnImmediate: ""},
		},
		Spec: cdiv1.DataVolumeSpec{Source: &source, Storage: &cdiv1.StorageSpec{
			StorageClassName: new(classLocal),
			Resources:        corev1.VolumeResourceRequirements{Requests: corev1.ResourceList{corev1.ResourceStorage: resource.MustParse(size)}},
		}},
	}
}

// The DataVolume waits for the first pod with its claim. Filled at once, it could be on another node, where the
// guest can't plug it.
func whereItIsUsed(dv *cdiv1.DataVolume) *cdiv1.DataVolume {
	delete(dv.Annotations, layout.AnnImmediate)
	return dv
}

func onDevice(dv *cdiv1.DataVolume) *cdiv1.DataVolume {
	dv.Spec.Storage.VolumeMode = new(corev1.PersistentVolumeBlock)
	return dv
}

func fromWeb(url string) cdiv1.DataVolumeSource {
	return cdiv1.DataVolumeSource{HTTP: &cdiv1.DataVolumeSourceHTTP{URL: url}}
}

func fromClaim(ns, name string) cdiv1.DataVolumeSource {
	return cdiv1.DataVolumeSource{PVC: &cdiv1.DataVolumeSourcePVC{Namespace: ns, Name: name}}
}

func awaitDataVolume(t *testing.T, ns, name, what string, seen func(*cdiv1.DataVolume) bool) *cdiv1.DataVolume {
	t.Helper()
	dv := &cdiv1.DataVolume{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: name}}
	return await(t, dv, &cdiv1.DataVolumeList{}, what, seen)
}

func awaitFilled(t *testing.T, ns, name string) *cdiv1.DataVolume {
	t.Helper()
	return awaitDataVolume(t, ns, name, "success", func(dv *cdiv1.DataVolume) bool { return dv.Status.Phase == cdiv1.Succeeded })
}

// The form is "reason: message".
func says(dv *cdiv1.DataVolume) string {
	for _, c := range dv.Status.Conditions {
		if c.Type == cdiv1.DataVolumeRunning {
			return c.Reason + ": " + c.Message
		}
	}
	return ""
}

func checksum(t *testing.T, ns, claim string, block bool) string {
	t.Helper()
	pod := toolsPod(ns, "reads-"+claim)
	pod.Spec.Volumes = []corev1.Volume{{Name: "claim", VolumeSource: corev1.VolumeSource{
		PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: claim},
	}}}
	file := "/claim/disk.img"
	if block {
		file = "/dev/claim"
		pod.Spec.Containers[0].VolumeDevices = []corev1.VolumeDevice{{Name: "claim", DevicePath: file}}
	} else {
		pod.Spec.Containers[0].VolumeMounts = []corev1.VolumeMount{{Name: "claim", MountPath: path.Dir(file)}}
	}
	create(t, pod)
	awaitPodRunning(t, ns, pod.Name)
	out, err := inPod(t, ns, pod.Name, "dd if="+file+" bs=1M count=8 2>/dev/null | sha256sum | cut -d' ' -f1")
	if err != nil {
		t.Fatalf("reading the disk in claim %s: %v\n%s", claim, err, out)
	}
	deleteObject(t, pod)
	awaitGone(t, pod)
	return out
}

func nothingBesides(t *testing.T, ns string) {
	t.Helper()
	ours := []client.ListOption{client.InNamespace(ns), client.MatchingLabels{"app": "containerized-data-importer"}}
	eventually(t, "the workers to be gone", func(ctx context.Context) error {
		for _, list := range []client.ObjectList{&corev1.PodList{}, &corev1.SecretList{}, &corev1.ServiceList{}} {
			if err := cluster.client.List(ctx, list, ours...); err != nil {
				return err
			}
			if meta.LenList(list) > 0 {
				return fmt.Errorf("%T is not empty", list)
			}
		}
		return nil
	})
}

// TestBrokenSourcesAreTold gives workers a server that lacks the image or has another one. One worker's pod is
// deleted, and the import succeeds in the end. Only real workers are restarted by a kubelet.
func TestBrokenSourcesAreTold(t *testing.T) {
	t.Parallel()
	ns := newNamespace(t)
	url, sum := serveImage(t, ns, "what-is-broken\n")
	wrong := newDataVolume(ns, "wrong-sum", "16Mi", fromWeb(url))
	wrong.Annotations["cdi.kubevirt.io/storage.import.checksum"] = "sha256:" + strings.Repeat("0", 64)
	for _, dv := range []*cdiv1.DataVolume{
		newDataVolume(ns, "missing", "16Mi", fromWeb(laterAt(url))),
		wrong,
		onDevice(newDataVolume(ns, "too-large", "4Mi", fromWeb(url))),
		newDataVolume(ns, "untrusted", "16Mi", fromWeb("https://kubernetes.default.svc/disk")),
	} {
		create(t, dv)
	}
	for name, want := range map[string]string{
		"missing": "SourceRefused: ", "untrusted": "Untrusted: ",
		"wrong-sum": "ChecksumMismatch: ", "too-large": "TooLarge: ",
	} {
		dv := awaitDataVolume(t, ns, name, want, func(dv *cdiv1.DataVolume) bool { return strings.HasPrefix(says(dv), want) })
		t.Logf("%s is %s: %s", name, dv.Status.Phase, says(dv))
	}
	for _, name := range []string{"wrong-sum", "too-large"} {
		awaitDataVolume(t, ns, name, "failure", func(dv *cdiv1.DataVolume) bool { return dv.Status.Phase == cdiv1.Failed })
	}
	for name, reason := range map[string]string{"missing": "SourceRefused", "untrusted": "Untrusted", "too-large": "ImportFailed"} {
		eventually(t, "an event of "+name+" that says "+reason, hasEvent(ns, name, strings.ToLower(reason)))
	}
	before := awaitDataVolume(t, ns, "missing", "a restart", func(dv *cdiv1.DataVolume) bool { return dv.Status.RestartCount > 0 })
	losesWorker(t, ns, "importer-missing")
	makeAvailable(t, ns)
	if dv := awaitFilled(t, ns, "missing"); dv.Status.RestartCount <= before.Status.RestartCount {
		t.Errorf("%d restarts after a worker was lost, %d before", dv.Status.RestartCount, before.Status.RestartCount)
	}
	if got := checksum(t, ns, "missing", false); got != sum {
		t.Errorf("the disk has the checksum %s, the server's %s", got, sum)
	}
	deleteObject(t, &cdiv1.DataVolume{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: "untrusted"}})
	nothingBesides(t, ns)
}

// losesWorker deletes a worker's pod and waits until it is gone. Its container may start once more meanwhile, and must
// not succeed.
func losesWorker(t *testing.T, ns, name string) {
	t.Helper()
	pod := &corev1.Pod{}
	if err := cluster.client.Get(t.Context(), client.ObjectKey{Namespace: ns, Name: name}, pod); err != nil {
		t.Fatal(err)
	}
	deleteObject(t, pod)
	eventually(t, "the worker to be lost", func(ctx context.Context) error {
		now := &corev1.Pod{}
		if err := cluster.client.Get(ctx, client.ObjectKeyFromObject(pod), now); err != nil || now.UID != pod.UID {
			return client.IgnoreNotFound(err)
		}
		return fmt.Errorf("%s is still there", name)
	})
}

// TestClonesAreWhatTheirSourceIs compares clones with their source: to a larger disk, to the other mode, to
// another namespace. Only real workers and the storage's driver copy.
func TestClonesAreWhatTheirSourceIs(t *testing.T) {
	t.Parallel()
	ns, other := newNamespace(t), newNamespace(t)
	url, sum := serveImage(t, ns, "what-is-cloned\n")
	create(t, newDataVolume(ns, "source", "16Mi", fromWeb(url)))
	create(t, onDevice(newDataVolume(ns, "device", "16Mi", fromWeb(url))))
	// These clones wait until their sources are filled.
	quick := onDevice(newDataVolume(ns, "by-driver", "16Mi", fromClaim(ns, "device")))
	quick.Spec.Storage.StorageClassName = new("local-immediate")
	create(t, newDataVolume(ns, "larger", "24Mi", fromClaim(ns, "source")))
	create(t, onDevice(newDataVolume(ns, "other-mode", "16Mi", fromClaim(ns, "source"))))
	create(t, newDataVolume(other, "elsewhere", "16Mi", fromClaim(ns, "source")))
	create(t, quick)

	for name, where := range map[string]string{"larger": ns, "other-mode": ns, "elsewhere": other, "by-driver": ns} {
		awaitFilled(t, where, name)
		if got := checksum(t, where, name, name == "other-mode" || name == "by-driver"); got != sum {
			t.Errorf("the clone %s has the checksum %s, its source's is %s", name, got, sum)
		}
	}
	claim := &corev1.PersistentVolumeClaim{}
	if err := cluster.client.Get(t.Context(), client.ObjectKeyFromObject(quick), claim); err != nil || claim.Spec.DataSource == nil {
		t.Errorf("the storage driver did not make the clone by-driver: %+v (%v)", claim.Spec, err)
	}
	nothingBesides(t, ns)
	nothingBesides(t, other)
}

// TestACloneNeedsTheRightToReadItsSource lets a user who may edit only one namespace ask for a clone from another.
// The authorizer, which is real only here, must refuse.
func TestACloneNeedsTheRightToReadItsSource(t *testing.T) {
	t.Parallel()
	ns, golden := newNamespace(t), newNamespace(t)
	user := "system:serviceaccount:" + ns + ":default"
	subject := []rbacv1.Subject{{Kind: "ServiceAccount", Namespace: ns, Name: "default"}}
	create(t, &rbacv1.RoleBinding{
		ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: "edits"}, Subjects: subject,
		RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "edit"},
	})
	config := rest.CopyConfig(cluster.config)
	config.Impersonate = rest.ImpersonationConfig{UserName: user, Groups: []string{"system:serviceaccounts", "system:authenticated"}}
	as, err := client.New(config, client.Options{Scheme: cluster.client.Scheme()})
	if err != nil {
		t.Fatal(err)
	}
	byReference := newDataVolume(ns, "by-reference", "16Mi", cdiv1.DataVolumeSource{})
	byReference.Spec.Source, byReference.Spec.SourceRef = nil, &cdiv1.DataVolumeSourceRef{Kind: "DataSource", Namespace: &golden, Name: "image"}
	forged := newDataVolume(ns, "forged", "16Mi", fromClaim(golden, "image"))
	forged.Annotations[datavolume.AnnCloneAllowed] = "pvc/" + golden + "/image"
	eventually(t, "the refusal", func(ctx context.Context) error {
		err := as.Create(ctx, forged.DeepCopy())
		if apierrors.IsForbidden(err) {
			return fmt.Errorf("the right to edit is not in force: %w", err)
		}
		for _, err := range []error{err, as.Create(ctx, byReference.DeepCopy())} {
			if err == nil || !strings.Contains(err.Error(), "you may not create datavolumes/source in namespace "+golden) {
				t.Fatalf("a clone without the right: %v", err)
			}
		}
		return nil
	})
	create(t, &rbacv1.RoleBinding{
		ObjectMeta: metav1.ObjectMeta{Namespace: golden, Name: "clones"}, Subjects: subject,
		RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "edit"},
	})
	eventually(t, "the right to clone", func(ctx context.Context) error {
		return as.Create(ctx, newDataVolume(ns, "allowed", "16Mi", fromClaim(golden, "image")))
	})
	dv := awaitDataVolume(t, ns, "allowed", "its source", func(dv *cdiv1.DataVolume) bool { return says(dv) != "" && says(dv) != ": " })
	if want := "CloneSourceNotReady: the source claim " + golden + "/image does not exist yet"; says(dv) != want {
		t.Errorf("it says %q, want %q", says(dv), want)
	}
}

// TestAVMIsMadeOfAGoldenImage creates a VM with another namespace's DataSource, then the DataSource, then fills
// its claim. The API server's tests cover the phases; here the guest must read the image.
func TestAVMIsMadeOfAGoldenImage(t *testing.T) {
	t.Parallel()
	ns, golden := newNamespace(t), newNamespace(t)
	url, sum := serveImage(t, golden, "what-is-golden\n")
	vm := newVM(newVMI(ns, "vm"), v1.RunStrategyAlways)
	addDataVolume(vm, "disk", classLocal, cdiv1.DataVolumeSource{})
	template := &vm.Spec.DataVolumeTemplates[0].Spec
	template.Source, template.SourceRef = nil, &cdiv1.DataVolumeSourceRef{Kind: "DataSource", Namespace: &golden, Name: "image"}
	create(t, vm)
	awaitDataVolume(t, ns, "vm-disk", "its DataSource", func(dv *cdiv1.DataVolume) bool {
		return says(dv) == "CloneSourceNotReady: the DataSource "+golden+"/image does not exist yet"
	})
	source := &cdiv1.DataSource{ObjectMeta: metav1.ObjectMeta{Namespace: golden, Name: "image"}}
	source.Spec.Source.PVC = &cdiv1.DataVolumeSourcePVC{Namespace: golden, Name: "image-1"}
	create(t, source.DeepCopy())
	create(t, newDataVolume(golden, "image-1", "16Mi", fromWeb(url)))

	awaitFilled(t, golden, "image-1")
	awaitFilled(t, ns, "vm-disk")
	awaitRunning(t, ns, "vm")
	g := login(t, ns, "vm")
	g.sees("the golden image", "dd if="+g.device("DISK")+" bs=1M count=8 2>/dev/null | sha256sum | cut -d' ' -f1", sum)
	await(t, source, &cdiv1.DataSourceList{}, "readiness", func(s *cdiv1.DataSource) bool {
		return len(s.Status.Conditions) == 1 && s.Status.Conditions[0].Status == corev1.ConditionTrue
	})
	nothingBesides(t, ns)
	nothingBesides(t, golden)
}

func laterAt(url string) string { return strings.TrimSuffix(url, path.Base(url)) + "later" }

func makeAvailable(t *testing.T, ns string) {
	t.Helper()
	if out, err := inPod(t, ns, "web", "cd /srv/web && cp image.qcow2.gz part && mv part later"); err != nil {
		t.Fatalf("making the image available: %v\n%s", err, out)
	}
}
