package datavolume

import (
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	cdiv1 "kubevirt.io/containerized-data-importer-api/pkg/apis/core/v1beta1"

	"drydock.dev/drydock/internal/contracts/layout"
	"drydock.dev/drydock/internal/contracts/transfer"
	"drydock.dev/drydock/internal/rules/object/objectevent"
)

var noon = time.Date(2026, 5, 1, 12, 0, 0, 0, time.UTC)

func newDV(source cdiv1.DataVolumeSource, edits ...func(*cdiv1.DataVolume)) *cdiv1.DataVolume {
	dv := &cdiv1.DataVolume{
		ObjectMeta: metav1.ObjectMeta{Name: "disk", Namespace: "ns", UID: "11111111-2222-3333-4444-555555555555"},
		Spec: cdiv1.DataVolumeSpec{
			Source: &source,
			Storage: &cdiv1.StorageSpec{Resources: corev1.VolumeResourceRequirements{
				Requests: corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("1Gi")},
			}},
		},
	}
	for _, edit := range edits {
		edit(dv)
	}
	return dv
}

func httpSource() cdiv1.DataVolumeSource {
	return cdiv1.DataVolumeSource{HTTP: &cdiv1.DataVolumeSourceHTTP{URL: "http://example.com/disk.qcow2"}}
}

func cloneOf(namespace, name string) cdiv1.DataVolumeSource {
	return cdiv1.DataVolumeSource{PVC: &cdiv1.DataVolumeSourcePVC{Namespace: namespace, Name: name}}
}

func inPhase(phase cdiv1.DataVolumePhase) func(*cdiv1.DataVolume) {
	return func(dv *cdiv1.DataVolume) { dv.Status.Phase = phase }
}

func annotated(name, value string) func(*cdiv1.DataVolume) {
	return func(dv *cdiv1.DataVolume) { metav1.SetMetaDataAnnotation(&dv.ObjectMeta, name, value) }
}

func class(mode storagev1.VolumeBindingMode) *storagev1.StorageClass {
	return &storagev1.StorageClass{ObjectMeta: metav1.ObjectMeta{Name: "fast"}, Provisioner: "local.csi.drydock.dev", VolumeBindingMode: &mode}
}

// A claim that is annotated as filled comes from the user: an import would take its place.
func TestAClaimThatIsSaidToBeFilledIsNotMade(t *testing.T) {
	for _, said := range []string{"disk", "true", ""} {
		p := decide(Observed{DataVolume: newDV(httpSource(), inPhase(cdiv1.Pending), annotated(AnnPrePopulated, said)), Config: ConfigOf(nil), Now: noon})
		running := Condition(&cdiv1.DataVolume{Status: p.Status}, cdiv1.DataVolumeRunning)
		if actions(p) != "" || running == nil || running.Message != "the claim disk is said to be filled and does not exist" {
			t.Errorf("with %q: does %q, Running is %+v", said, actions(p), running)
		}
	}
}

// decide returns the plan after all questions, with every object as it was observed.
func decide(o Observed) Plan {
	o.Confirmed, o.WarningAsked, o.Source.WritersAsked, o.UsersAsked = true, true, true, true
	if o.Progress == nil {
		o.Progress = &transfer.Progress{}
	}
	return Decide(o)
}

// claimOf is the DataVolume's claim as Decide plans it.
func claimOf(o Observed, phase corev1.PersistentVolumeClaimPhase) *corev1.PersistentVolumeClaim {
	claim := newClaim(o, methodCopy)
	claim.Status.Phase = phase
	return claim
}

func podOf(dv *cdiv1.DataVolume, status corev1.PodStatus) *corev1.Pod {
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Name: WorkerName(dv), Namespace: dv.Namespace,
			OwnerReferences: []metav1.OwnerReference{*metav1.NewControllerRef(dv, cdiv1.SchemeGroupVersion.WithKind("DataVolume"))},
		},
		Status: status,
	}
}

func running() corev1.PodStatus {
	return corev1.PodStatus{Phase: corev1.PodRunning, ContainerStatuses: []corev1.ContainerStatus{
		{State: corev1.ContainerState{Running: &corev1.ContainerStateRunning{}}},
	}}
}

func ended(phase corev1.PodPhase, code int32, result transfer.Result) corev1.PodStatus {
	text, err := json.Marshal(result)
	if err != nil {
		panic(err)
	}
	return corev1.PodStatus{Phase: phase, ContainerStatuses: []corev1.ContainerStatus{
		{State: corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{ExitCode: code, Message: string(text)}}},
	}}
}

func completed() corev1.PodStatus {
	return ended(corev1.PodSucceeded, 0, transfer.Result{Reason: transfer.ReasonCompleted})
}

// restarting is a worker that the kubelet will restart.
func restarting(restarts int32, result transfer.Result) corev1.PodStatus {
	status := ended(corev1.PodRunning, 1, result)
	c := &status.ContainerStatuses[0]
	c.LastTerminationState, c.RestartCount = c.State, restarts
	c.State = corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: "CrashLoopBackOff", Message: "back-off"}}
	return status
}

// actions names a plan's actions beside the status.
func actions(p Plan) string {
	var out []string
	for name, done := range map[string]bool{
		"add finalizer": p.AddFinalizer, "create claim": p.CreateClaim != nil, "create restored": p.CreateRestored != nil, "adopt claim": p.AdoptClaim,
		"create worker": p.CreateWorker != nil, "create source": p.CreateSourcePod != nil,
		"delete worker": p.DeleteWorker, "delete source": p.DeleteSourcePod, "delete restored": p.DeleteRestored, "remove finalizer": p.RemoveFinalizer,
	} {
		if done {
			out = append(out, name)
		}
	}
	return strings.Join(out, ", ")
}

func TestEachStateHasOneNextStep(t *testing.T) {
	immediate, waiting := class(storagev1.VolumeBindingImmediate), class(storagev1.VolumeBindingWaitForFirstConsumer)
	tests := map[string]struct {
		phase  cdiv1.DataVolumePhase
		source cdiv1.DataVolumeSource
		edit   func(*Observed)
		// want is the resulting phase, does has the other actions, says is the Running condition as "status reason:
		// message".
		want cdiv1.DataVolumePhase
		does string
		says string
	}{
		"a new one is Pending before anything is made": {
			"", httpSource(), func(*Observed) {}, cdiv1.Pending, "", "False : ",
		},
		"its claim is made": {
			cdiv1.Pending, httpSource(), func(*Observed) {}, cdiv1.Pending, "create claim", "False : ",
		},
		"a class that is not there is waited for": {
			cdiv1.Pending, httpSource(), func(o *Observed) {
				o.Class, o.DataVolume.Spec.Storage.StorageClassName = nil, new("slow")
			},
			cdiv1.Pending, "", "False ErrClaimNotValid: there is no StorageClass slow",
		},
		"a claim that waits for its first consumer": {
			cdiv1.Pending, httpSource(), func(o *Observed) { o.Class = waiting; o.Claim = claimOf(*o, corev1.ClaimPending) },
			cdiv1.WaitForFirstConsumer, "", "False WaitForFirstConsumer: the claim is bound where the first pod that uses it is scheduled; " +
				"annotate the DataVolume with cdi.kubevirt.io/storage.bind.immediate.requested not to wait",
		},
		"one that shall not wait has its worker at once": {
			cdiv1.Pending, httpSource(), func(o *Observed) {
				o.Class = waiting
				annotated(layout.AnnImmediate, "")(o.DataVolume)
				o.Claim = claimOf(*o, corev1.ClaimPending)
			},
			cdiv1.Pending, "create worker", "False Pending: the claim is waiting for its volume",
		},
		"a claim that the driver can't make says why": {
			cdiv1.Pending, httpSource(), func(o *Observed) {
				o.Claim, o.Warning = claimOf(*o, corev1.ClaimPending), &objectevent.Warning{Reason: "ProvisioningFailed", Message: "no space"}
			},
			cdiv1.Pending, "", "False ProvisioningFailed: no space",
		},
		"a worker whose Secret is not there says so": {
			cdiv1.ImportScheduled, httpSource(), func(o *Observed) {
				o.Claim, o.Worker = claimOf(*o, corev1.ClaimBound), podOf(o.DataVolume, corev1.PodStatus{Phase: corev1.PodPending})
				o.Warning = &objectevent.Warning{Reason: "FailedMount", Message: `secret "password" not found`}
			},
			cdiv1.ImportScheduled, "", `False FailedMount: secret "password" not found`,
		},
		"a bound claim of a class that waits is never taken for one that did not wait": {
			cdiv1.Pending, httpSource(), func(o *Observed) { o.Class = waiting; o.Claim = claimOf(*o, corev1.ClaimBound) },
			cdiv1.WaitForFirstConsumer, "", "False : ",
		},
		"the consumer came": {
			cdiv1.WaitForFirstConsumer, httpSource(), func(o *Observed) { o.Class = waiting; o.Claim = claimOf(*o, corev1.ClaimBound) },
			cdiv1.PVCBound, "", "False : ",
		},
		"a bound claim has its worker": {
			cdiv1.PVCBound, httpSource(), func(o *Observed) { o.Claim = claimOf(*o, corev1.ClaimBound) },
			cdiv1.PVCBound, "create worker", "False : ",
		},
		"a worker that ended before it was seen goes through all phases": {
			cdiv1.PVCBound, httpSource(), func(o *Observed) {
				o.Claim, o.Worker = claimOf(*o, corev1.ClaimBound), podOf(o.DataVolume, completed())
			},
			cdiv1.ImportScheduled, "", "False Pending: the worker pod is starting",
		},
		"the last of them": {
			cdiv1.ImportInProgress, httpSource(), func(o *Observed) {
				o.Claim, o.Worker = claimOf(*o, corev1.ClaimBound), podOf(o.DataVolume, completed())
			},
			cdiv1.Succeeded, "", "False Completed: Import Complete",
		},
		"a worker that will be tried again says why": {
			cdiv1.ImportInProgress, httpSource(), func(o *Observed) {
				o.Claim = claimOf(*o, corev1.ClaimBound)
				o.Worker = podOf(o.DataVolume, restarting(3, transfer.Result{Reason: transfer.ReasonSourceRefused, Message: "404 Not Found"}))
			},
			cdiv1.ImportInProgress, "", "False SourceRefused: 404 Not Found",
		},
		"one for which that is no use": {
			cdiv1.ImportInProgress, httpSource(), func(o *Observed) {
				o.Claim = claimOf(*o, corev1.ClaimBound)
				o.Worker = podOf(o.DataVolume, restarting(1, transfer.Result{Reason: transfer.ReasonTooLarge, Message: "20 GiB"}))
			},
			cdiv1.Failed, "", "False TooLarge: 20 GiB",
		},
		"success without a result is none": {
			cdiv1.ImportInProgress, httpSource(), func(o *Observed) {
				o.Claim = claimOf(*o, corev1.ClaimBound)
				o.Worker = podOf(o.DataVolume, ended(corev1.PodSucceeded, 0, transfer.Result{}))
			},
			cdiv1.ImportInProgress, "delete worker", "False Error: the worker ended with exit code 0 and said no more",
		},
		"nor is a result of a container that was killed": {
			cdiv1.ImportInProgress, httpSource(), func(o *Observed) {
				o.Claim = claimOf(*o, corev1.ClaimBound)
				o.Worker = podOf(o.DataVolume, ended(corev1.PodFailed, 137, transfer.Result{Reason: transfer.ReasonCompleted}))
			},
			cdiv1.ImportInProgress, "delete worker", "False Error: the worker ended with exit code 137 and said no more",
		},
		"a container that was killed says by whom": {
			cdiv1.ImportInProgress, httpSource(), func(o *Observed) {
				o.Claim = claimOf(*o, corev1.ClaimBound)
				status := ended(corev1.PodFailed, 137, transfer.Result{})
				status.ContainerStatuses[0].State.Terminated.Reason = "OOMKilled"
				o.Worker = podOf(o.DataVolume, status)
			},
			cdiv1.ImportInProgress, "delete worker", "False Error: the worker ended with exit code 137 (OOMKilled) and said no more",
		},
		"an evicted worker is replaced when it is gone": {
			cdiv1.ImportInProgress, httpSource(), func(o *Observed) {
				o.Claim = claimOf(*o, corev1.ClaimBound)
				o.Worker = podOf(o.DataVolume, corev1.PodStatus{Phase: corev1.PodFailed, Reason: "Evicted", Message: "the node was low on memory"})
			},
			cdiv1.ImportInProgress, "delete worker", "False Error: the worker pod was ended from outside (Evicted): the node was low on memory",
		},
		"not before": {
			cdiv1.ImportInProgress, httpSource(), func(o *Observed) {
				o.Claim, o.Worker = claimOf(*o, corev1.ClaimBound), podOf(o.DataVolume, running())
				o.Worker.DeletionTimestamp = &metav1.Time{Time: noon}
			},
			cdiv1.ImportInProgress, "", "False WorkerGone: the worker pod is being deleted; another is made when it is gone",
		},
		"a worker without a node says what the scheduler says": {
			cdiv1.ImportScheduled, httpSource(), func(o *Observed) {
				o.Claim = claimOf(*o, corev1.ClaimBound)
				o.Worker = podOf(o.DataVolume, corev1.PodStatus{Conditions: []corev1.PodCondition{
					{Type: corev1.PodScheduled, Status: corev1.ConditionFalse, Reason: "Unschedulable", Message: "0/2 nodes"},
				}})
			},
			cdiv1.ImportScheduled, "", "False Unschedulable: 0/2 nodes",
		},
		"the claim of a stranger": {
			cdiv1.Pending, httpSource(), func(o *Observed) {
				o.Claim = claimOf(*o, corev1.ClaimBound)
				o.Claim.OwnerReferences = nil
			},
			cdiv1.Pending, "", "False ErrResourceExists: the claim disk exists and is not of this DataVolume: " +
				"delete it, or annotate it with cdi.kubevirt.io/allowClaimAdoption=true when it is filled already",
		},
		"one that is offered": {
			cdiv1.Pending, httpSource(), func(o *Observed) {
				o.Claim = claimOf(*o, corev1.ClaimBound)
				o.Claim.OwnerReferences, o.Claim.Annotations = nil, map[string]string{AnnAdoption: "true"}
			},
			cdiv1.Pending, "adopt claim", "False : ",
		},
		"and then needs no worker": {
			cdiv1.Pending, httpSource(), func(o *Observed) {
				o.Claim = claimOf(*o, corev1.ClaimBound)
				o.Claim.Annotations[AnnPopulatedFor] = "disk"
			},
			cdiv1.Succeeded, "", "False Completed: Import Complete",
		},
		"a claim that went before it was bound is made again": {
			cdiv1.WaitForFirstConsumer, httpSource(), func(o *Observed) { o.Class = waiting },
			cdiv1.WaitForFirstConsumer, "create claim", "False : ",
		},
		"one that went while it was filled is not": {
			cdiv1.ImportInProgress, httpSource(), func(*Observed) {},
			cdiv1.Failed, "", "False ClaimLost: the claim disk was deleted before it was filled: delete the DataVolume to begin again",
		},
		"after success the worker goes": {
			cdiv1.Succeeded, httpSource(), func(o *Observed) {
				o.Claim, o.Worker = claimOf(*o, corev1.ClaimBound), podOf(o.DataVolume, completed())
			},
			cdiv1.Succeeded, "delete worker", "",
		},
		"an upload worker that does not listen yet": {
			cdiv1.UploadScheduled, cdiv1.DataVolumeSource{Upload: &cdiv1.DataVolumeSourceUpload{}}, func(o *Observed) {
				o.Claim, o.Worker = claimOf(*o, corev1.ClaimBound), podOf(o.DataVolume, running())
			},
			cdiv1.UploadScheduled, "", "True Pod is running: ",
		},
		"a claim that another pod uses is not filled": {
			cdiv1.PVCBound, httpSource(), func(o *Observed) { o.Claim, o.UsedBy = claimOf(*o, corev1.ClaimBound), "pod web" },
			cdiv1.PVCBound, "", "False ClaimInUse: pod web is using the claim disk: the claim is filled when that has ended",
		},
		"nor when the worker has waited for its node meanwhile": {
			cdiv1.ImportScheduled, httpSource(), func(o *Observed) {
				o.Claim, o.Worker, o.UsedBy = claimOf(*o, corev1.ClaimBound), podOf(o.DataVolume, corev1.PodStatus{}), "pod web"
				o.Worker.Spec.NodeName = "node"
			},
			cdiv1.ImportScheduled, "delete worker", "False ClaimInUse: pod web is using the claim disk: the claim is filled when that has ended",
		},
		"nor when the worker is to begin again": {
			cdiv1.ImportInProgress, httpSource(), func(o *Observed) {
				o.Claim, o.UsedBy = claimOf(*o, corev1.ClaimBound), "pod web"
				o.Worker = podOf(o.DataVolume, restarting(1, transfer.Result{Reason: transfer.ReasonCut, Message: "cut"}))
				o.Worker.Spec.NodeName = "node"
			},
			cdiv1.ImportInProgress, "delete worker", "False ClaimInUse: pod web is using the claim disk: the claim is filled when that has ended",
		},
		"a claim that awaits an upload of its own is not taken over as filled": {
			cdiv1.Pending, httpSource(), func(o *Observed) {
				o.Claim = claimOf(*o, corev1.ClaimBound)
				o.Claim.OwnerReferences = nil
				o.Claim.Annotations[AnnAdoption], o.Claim.Annotations[layout.AnnUploadTarget] = "true", ""
			},
			cdiv1.Pending, "", "False ErrResourceExists: the claim disk awaits an upload: upload its disk, " +
				"or take away its annotation cdi.kubevirt.io/storage.upload.target to use it as it is",
		},
		"one that does": {
			cdiv1.UploadScheduled, cdiv1.DataVolumeSource{Upload: &cdiv1.DataVolumeSourceUpload{}}, func(o *Observed) {
				status := running()
				status.Conditions = []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionTrue}}
				o.Claim, o.Worker = claimOf(*o, corev1.ClaimBound), podOf(o.DataVolume, status)
			},
			cdiv1.UploadReady, "", "True Pod is running: ",
		},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			o := Observed{DataVolume: newDV(test.source, inPhase(test.phase)), Class: immediate, Config: ConfigOf(nil), Now: noon}
			test.edit(&o)
			p := decide(o)
			if p.Status.Phase != test.want || actions(p) != test.does {
				t.Errorf("phase %s, does %q; want %s and %q", p.Status.Phase, actions(p), test.want, test.does)
			}
			said := ""
			if c := Condition(&cdiv1.DataVolume{Status: p.Status}, cdiv1.DataVolumeRunning); c != nil {
				said = string(c.Status) + " " + c.Reason + ": " + c.Message
			}
			if said != test.says {
				t.Errorf("Running says\n\t%s\nwant\n\t%s", said, test.says)
			}
		})
	}
}

func TestAClonesSourceIsLookedAt(t *testing.T) {
	allowed := annotated(AnnCloneAllowed, "pvc/golden/image")
	source := func(edits ...func(*corev1.PersistentVolumeClaim)) *corev1.PersistentVolumeClaim {
		claim := &corev1.PersistentVolumeClaim{
			ObjectMeta: metav1.ObjectMeta{Name: "image", Namespace: "golden"},
			Spec: corev1.PersistentVolumeClaimSpec{VolumeName: "pv", Resources: corev1.VolumeResourceRequirements{
				Requests: corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("1Gi")},
			}},
			Status: corev1.PersistentVolumeClaimStatus{
				Phase: corev1.ClaimBound, Capacity: corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("1Gi")},
			},
		}
		for _, edit := range edits {
			edit(claim)
		}
		return claim
	}
	volume := &corev1.PersistentVolume{Spec: corev1.PersistentVolumeSpec{PersistentVolumeSource: corev1.PersistentVolumeSource{
		CSI: &corev1.CSIPersistentVolumeSource{Driver: "local.csi.drydock.dev"},
	}}}
	here := func(c *corev1.PersistentVolumeClaim) { c.Namespace = "ns" }
	exactly := func(size string) func(*cdiv1.DataVolume) {
		return func(dv *cdiv1.DataVolume) {
			dv.Spec.Storage, dv.Spec.PVC = nil, &corev1.PersistentVolumeClaimSpec{Resources: corev1.VolumeResourceRequirements{
				Requests: corev1.ResourceList{corev1.ResourceStorage: resource.MustParse(size)},
			}}
		}
	}
	tests := map[string]struct {
		dv   *cdiv1.DataVolume
		edit func(*Observed)
		want cdiv1.DataVolumePhase
		does string
		says string
	}{
		"whoever may not read it gets nothing": {
			newDV(cloneOf("golden", "image"), inPhase(cdiv1.Pending)), func(*Observed) {}, cdiv1.Failed, "",
			"the user who created this DataVolume may not read pvc golden/image: create it again as a user who may create datavolumes/source in namespace golden",
		},
		"the right to read another is none": {
			newDV(cloneOf("golden", "secret"), inPhase(cdiv1.Pending), allowed), func(*Observed) {}, cdiv1.Failed, "",
			"the user who created this DataVolume may not read pvc golden/secret: create it again as a user who may create datavolumes/source in namespace golden",
		},
		"one that does not exist is waited for": {
			newDV(cloneOf("golden", "image"), inPhase(cdiv1.Pending), allowed), func(o *Observed) { o.Source.Claim = nil }, cdiv1.Pending, "",
			"the source claim golden/image does not exist",
		},
		"a copy has a claim of its own": {
			newDV(cloneOf("golden", "image"), inPhase(cdiv1.Pending), allowed), func(*Observed) {}, cdiv1.Pending, "create claim", "",
		},
		"and waits for those who write the source": {
			newDV(cloneOf("golden", "image"), inPhase(cdiv1.PVCBound), allowed), func(o *Observed) {
				o.Claim, o.Source.UsedBy = claimOf(*o, corev1.ClaimBound), "virt-launcher-x"
			}, cdiv1.PVCBound, "", "pod golden/virt-launcher-x is using the source claim image: stop it, and the clone begins",
		},
		"the finalizer comes before a pod that can't be owned": {
			newDV(cloneOf("golden", "image"), inPhase(cdiv1.PVCBound), allowed), func(o *Observed) {
				o.Claim = claimOf(*o, corev1.ClaimBound)
				o.Worker = podOf(o.DataVolume, running())
			}, cdiv1.CloneScheduled, "add finalizer", "",
		},
		"then that pod": {
			newDV(cloneOf("golden", "image"), inPhase(cdiv1.CloneScheduled), allowed, func(dv *cdiv1.DataVolume) { dv.Finalizers = []string{Finalizer} }),
			func(o *Observed) {
				o.Claim = claimOf(*o, corev1.ClaimBound)
				o.Worker = podOf(o.DataVolume, running())
			}, cdiv1.CloneInProgress, "create source", "",
		},
		"in one's own namespace no finalizer is needed": {
			newDV(cloneOf("ns", "image"), inPhase(cdiv1.CloneScheduled)), func(o *Observed) {
				here(o.Source.Claim)
				o.Claim = claimOf(*o, corev1.ClaimBound)
				o.Worker = podOf(o.DataVolume, running())
			}, cdiv1.CloneInProgress, "create source", "",
		},
		"the driver clones what is as large": {
			newDV(cloneOf("ns", "image"), inPhase(cdiv1.Pending), exactly("1Gi")), func(o *Observed) { here(o.Source.Claim) },
			cdiv1.Pending, "create claim", "",
		},
		"a source pod whose DataVolume is deleted goes first": {
			newDV(cloneOf("golden", "image"), inPhase(cdiv1.CloneInProgress), allowed, func(dv *cdiv1.DataVolume) {
				dv.Finalizers, dv.DeletionTimestamp = []string{Finalizer}, &metav1.Time{Time: noon}
			}), func(o *Observed) { o.SourcePod = &corev1.Pod{} }, cdiv1.CloneInProgress, "delete source", "",
		},
		"then the finalizer": {
			newDV(cloneOf("golden", "image"), inPhase(cdiv1.CloneInProgress), allowed, func(dv *cdiv1.DataVolume) {
				dv.Finalizers, dv.DeletionTimestamp = []string{Finalizer}, &metav1.Time{Time: noon}
			}), func(*Observed) {}, cdiv1.CloneInProgress, "remove finalizer", "",
		},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			o := Observed{DataVolume: test.dv, Class: class(storagev1.VolumeBindingImmediate), Config: ConfigOf(nil), Now: noon}
			o.Source.Claim, o.Source.Volume = source(), volume
			test.edit(&o)
			p := decide(o)
			if p.Status.Phase != test.want || actions(p) != test.does {
				t.Errorf("phase %s, does %q; want %s and %q", p.Status.Phase, actions(p), test.want, test.does)
			}
			c := Condition(&cdiv1.DataVolume{Status: p.Status}, cdiv1.DataVolumeRunning)
			if test.says != "" && (c == nil || c.Message != test.says) {
				t.Errorf("says %+v, want %s", c, test.says)
			}
			o.Confirmed, o.WarningAsked, o.Progress, o.Source.UsedBy = true, true, &transfer.Progress{}, ""
			if Decide(o).Needs != NeedWriters {
				o.Source.UsedBy = "virt-launcher-y"
				if diff := cmp.Diff(p, decide(o)); diff != "" {
					t.Errorf("a writer that is not asked for changes the plan:\n%s", diff)
				}
			}
			if name == "the driver clones what is as large" && (p.CreateClaim == nil || p.CreateClaim.Spec.DataSource == nil) {
				t.Errorf("the claim %+v has no source", p.CreateClaim)
			}
		})
	}
}

func TestWhatIsAskedFirst(t *testing.T) {
	source := func(o *Observed) {
		o.Source.Claim = &corev1.PersistentVolumeClaim{
			ObjectMeta: metav1.ObjectMeta{Name: "image", Namespace: "ns"},
			Status: corev1.PersistentVolumeClaimStatus{Phase: corev1.ClaimBound, Capacity: corev1.ResourceList{
				corev1.ResourceStorage: resource.MustParse("1Gi"),
			}},
		}
	}
	bound := func(o *Observed) { o.Claim = claimOf(*o, corev1.ClaimBound) }
	worker := func(status corev1.PodStatus) func(*Observed) {
		return func(o *Observed) { o.Worker = podOf(o.DataVolume, status) }
	}
	confirmed := func(o *Observed) { o.Confirmed = true }
	for name, test := range map[string]struct {
		dv    *cdiv1.DataVolume
		edits []func(*Observed)
		want  Question
	}{
		"a new one gets its first word":                 {newDV(httpSource()), nil, ""},
		"a claim is to be made":                         {newDV(httpSource(), inPhase(cdiv1.Pending)), nil, NeedDataVolume},
		"and the DataVolume is the newest":              {newDV(httpSource(), inPhase(cdiv1.Pending)), []func(*Observed){confirmed}, ""},
		"a filled claim is offered":                     {newDV(httpSource(), inPhase(cdiv1.Pending), annotated(AnnAdoption, "true")), []func(*Observed){bound, ownerless}, NeedDataVolume},
		"a claim waits for its volume":                  {newDV(httpSource(), inPhase(cdiv1.Pending)), []func(*Observed){pendingSince(time.Minute)}, NeedWarning},
		"and its warning is known":                      {newDV(httpSource(), inPhase(cdiv1.Pending)), []func(*Observed){pendingSince(time.Minute), func(o *Observed) { o.WarningAsked = true }}, ""},
		"not yet for long":                              {newDV(httpSource(), inPhase(cdiv1.Pending)), []func(*Observed){pendingSince(time.Second)}, ""},
		"a worker is to be made":                        {newDV(httpSource(), inPhase(cdiv1.PVCBound)), []func(*Observed){bound}, NeedDataVolume},
		"a worker runs, and the phase is to be written": {newDV(httpSource(), inPhase(cdiv1.ImportScheduled)), []func(*Observed){bound, worker(running())}, ""},
		"a worker runs":                                 {newDV(httpSource(), inPhase(cdiv1.ImportInProgress)), []func(*Observed){bound, worker(running())}, NeedProgress},
		"a worker has ended":                            {newDV(httpSource(), inPhase(cdiv1.ImportInProgress)), []func(*Observed){bound, worker(completed())}, ""},
		"a copy gets its claim, whoever writes":         {newDV(cloneOf("ns", "image"), inPhase(cdiv1.Pending)), []func(*Observed){source}, NeedDataVolume},
		"the worker of a copy is to be made":            {newDV(cloneOf("ns", "image"), inPhase(cdiv1.PVCBound)), []func(*Observed){source, bound}, NeedWriters},
		"a copy whose source is not filled":             {newDV(cloneOf("ns", "image"), inPhase(cdiv1.PVCBound)), []func(*Observed){source, bound, func(o *Observed) { o.Source.Unfilled = "other" }}, ""},
		"the pod that sends a copy is missing":          {newDV(cloneOf("ns", "image"), inPhase(cdiv1.CloneScheduled)), []func(*Observed){source, bound, worker(corev1.PodStatus{})}, NeedWriters},
		"the newest one's worker is to be made":         {newDV(httpSource(), inPhase(cdiv1.PVCBound)), []func(*Observed){bound, confirmed}, NeedUsers},
		"a worker that has its node is to begin": {newDV(httpSource(), inPhase(cdiv1.ImportScheduled)), []func(*Observed){bound, worker(corev1.PodStatus{}), func(o *Observed) {
			o.Worker.Spec.NodeName, o.WarningAsked = "node", true
		}}, NeedUsers},
		"both pods of a copy are there": {newDV(cloneOf("ns", "image"), inPhase(cdiv1.CloneScheduled)), []func(*Observed){source, bound, worker(corev1.PodStatus{}),
			func(o *Observed) { o.SourcePod = &corev1.Pod{} }}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			o := Observed{DataVolume: test.dv, Class: class(storagev1.VolumeBindingImmediate), Config: ConfigOf(nil), Now: noon}
			for _, edit := range test.edits {
				edit(&o)
			}
			if got := Decide(o).Needs; got != test.want {
				t.Errorf("asks for %q, want %q", got, test.want)
			}
		})
	}
}

// pendingSince adds the DataVolume's claim, unbound for that long.
func pendingSince(age time.Duration) func(*Observed) {
	return func(o *Observed) {
		o.Claim = claimOf(*o, corev1.ClaimPending)
		o.Claim.CreationTimestamp = metav1.NewTime(noon.Add(-age))
	}
}

func ownerless(o *Observed) { o.Claim.OwnerReferences = nil }

func TestProgressIsWrittenAtItsPaceAndNeverGoesBack(t *testing.T) {
	o := Observed{
		DataVolume: newDV(httpSource(), inPhase(cdiv1.ImportInProgress)), Class: class(storagev1.VolumeBindingImmediate),
		Config: ConfigOf(nil), Now: noon,
	}
	o.Claim, o.Worker = claimOf(o, corev1.ClaimBound), podOf(o.DataVolume, running())
	if got := Decide(o).Needs; got != NeedProgress {
		t.Errorf("of a worker at work it asks for %q, want its progress", got)
	}
	tell := func(after time.Duration, done int64) (cdiv1.DataVolumeProgress, string) {
		o.Now = noon.Add(after)
		o.Progress = &transfer.Progress{Done: done, Total: 1 << 30, SecondsLeft: 7, Step: "copying"}
		o.DataVolume.Status = decide(o).Status
		return o.DataVolume.Status.Progress, Condition(o.DataVolume, cdiv1.DataVolumeRunning).Message
	}
	for _, step := range []struct {
		after    time.Duration
		done     int64
		progress cdiv1.DataVolumeProgress
		message  string
	}{
		{0, 1 << 28, "25.00%", "copying, 256.0 MiB of 1.0 GiB, about 7s left"},
		{time.Second, 1 << 29, "25.00%", "copying, 256.0 MiB of 1.0 GiB, about 7s left"},
		{2 * time.Second, 1 << 29, "50.00%", "copying, 512.0 MiB of 1.0 GiB, about 7s left"},
		{5 * time.Second, 0, "50.00%", "copying, 0 B of 1.0 GiB, about 7s left"},
		{9 * time.Second, 1 << 30, "99.99%", "copying, 1.0 GiB of 1.0 GiB, about 7s left"},
	} {
		progress, message := tell(step.after, step.done)
		if progress != step.progress || message != step.message {
			t.Errorf("after %v: %s, %q; want %s, %q", step.after, progress, message, step.progress, step.message)
		}
	}
}

func TestRestartsAreCountedOverWorkersThatWereLost(t *testing.T) {
	o := Observed{
		DataVolume: newDV(httpSource(), inPhase(cdiv1.ImportInProgress)), Class: class(storagev1.VolumeBindingImmediate),
		Config: ConfigOf(nil), Now: noon,
	}
	o.Claim = claimOf(o, corev1.ClaimBound)
	o.Worker = podOf(o.DataVolume, restarting(3, transfer.Result{Reason: transfer.ReasonCut}))
	o.DataVolume.Status = decide(o).Status
	o.Worker = nil
	made := decide(o).CreateWorker
	if made == nil || made.RestartsBefore != 4 {
		t.Fatalf("the worker after the lost one is %+v, want 4 restarts before it", made)
	}
	o.Worker = podOf(o.DataVolume, running())
	o.Worker.Annotations = map[string]string{AnnRestarts: "4"}
	if got := decide(o).Status.RestartCount; got != 4 {
		t.Errorf("%d restarts, want 4", got)
	}
}
